"""serve(actor): the main of a process that hosts one actor, supervised as one in C++ is (common/actor/worker.h).

It serves CallService on the event loop of this thread, tells its shim that it is ready and, once a second, how it is; it
ends, with exit code 0, when the shim orders it to, on SIGTERM or SIGINT, or when the shim is gone: calls that run are
waited for until the deadline, then the process is gone whatever they do. Handlers run on their lanes' threads.
"""

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback

import grpc
import grpc.aio

from manta import credentials, shim
from manta.actor import to_bytes
from manta.errors import CallError
from manta.lanes import Lane
from manta.sessions import CallTable, Link
from manta.v1 import actor_pb2, call_pb2, node_pb2

SIGNAL_GRACE = 2.0  # SIGTERM says no deadline of its own
LONGEST_GRACE = 600.0
MAX_TRANSFERS = 256 << 20  # bytes of large arguments that no call has taken yet
LONGEST_INVOKE_MS = 3600 * 1000
_CODES = {code.name: code for code in grpc.StatusCode}

log = logging.getLogger("manta")


def serve(actor, argv=None):
    """Runs the actor until it is stopped, then ends the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s: %(message)s")
    flags, actor.args = _parse(sys.argv[1:] if argv is None else argv)
    try:
        link = None if flags.standalone else shim.from_environment()
        server = _Server(actor, flags, credentials.Keys.from_file(flags.token_file), link)
        actor.setup()
        code = asyncio.run(server.run())
    except (OSError, ValueError) as error:
        print(f"{os.path.basename(sys.argv[0])}: error: {error}", file=sys.stderr)
        code = 64
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a handler may still run


def _parse(argv):
    env = os.environ.get
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--actor-id", default=None)
    parser.add_argument("--epoch", type=int, default=None)
    parser.add_argument("--token-file", default=None)
    parser.add_argument("--listen", default=None)
    parser.add_argument("--parent-pid", type=int, default=0)
    parser.add_argument("--standalone", action="store_true")
    flags, rest = parser.parse_known_args(argv)
    supervised = not flags.standalone
    flags.actor_id = flags.actor_id or (supervised and env("MANTA_ACTOR_ID")) or "standalone-0"
    if flags.epoch is None:
        flags.epoch = int(env("MANTA_EPOCH", "0")) if supervised else 0
    flags.token_file = flags.token_file or (env("MANTA_TOKEN_FILE", "") if supervised else "")
    flags.listen = flags.listen or (env("MANTA_LISTEN", "") if supervised else "") or "127.0.0.1:0"
    if not flags.token_file:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: error: --token-file is missing: no process serves without a token")
    if not flags.actor_id.rpartition("-")[2].isdigit():
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: error: --actor-id {flags.actor_id}: expected ROLE-RANK")
    return flags, rest


class _Server:

    def __init__(self, actor, flags, keys, link):
        self.actor, self.flags, self.keys, self.link = actor, flags, keys, link
        self.certificates = None if flags.standalone else credentials.Certificates.from_environment("worker")
        actor.actor_id, actor.epoch, actor._link = flags.actor_id, flags.epoch, link
        actor.rank = int(flags.actor_id.rpartition("-")[2])
        found = actor.methods()
        self.handlers = {method.name: getattr(actor, name) for method, name in found}
        self.lanes = {}
        for name in {"control", "work"} | {method.lane for method, _ in found} | set(actor.lanes):
            self.lanes[name] = Lane(name, *actor.lanes.get(name, (1, 1024)))
        self.table = CallTable(flags.actor_id, flags.epoch, [method for method, _ in found], self.admit)
        self.state = actor_pb2.ACTOR_STATE_READY
        self.completed = 0
        self.stopping = None

    # ---- Life
    async def run(self):
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        faulthandler.register(signal.SIGUSR2, all_threads=False)  # `manta stacks` sends it to every thread
        self.server = grpc.aio.server(options=[("grpc.max_receive_message_length", 1 << 30),
                                               ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((self._services(),))
        host = self.flags.listen.rpartition(":")[0]
        try:
            own = credentials.server_credentials(self.flags.listen, self.certificates)
            port = self.server.add_secure_port(self.flags.listen, own)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.flags.listen}: {error}") from error
        await self.server.start()
        address = f"{host}:{port}"
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stop, signal.Signals(number).name, SIGNAL_GRACE)
        print(f"listening {address}", flush=True)
        if self.link is not None:
            self.link.watch(self.loop, self.on_order, lambda: self.stop("its shim is gone", SIGNAL_GRACE))
            ready = node_pb2.WorkerReady(address=address, methods=self.table.method_infos())
            self.link.send(node_pb2.WorkerReport(ready=ready))
        beats = asyncio.create_task(self._beat())
        await self.over.wait()
        beats.cancel()
        return 0

    async def _beat(self):
        while True:
            try:
                self._report_beat()
                if self.flags.parent_pid and not os.path.exists(f"/proc/{self.flags.parent_pid}"):
                    self.stop("its parent is gone", SIGNAL_GRACE)
                self.table.tick()
            except Exception:  # without beats it would be taken for dead
                log.exception("a beat was left out")
            await asyncio.sleep(1)

    def _report_beat(self):
        if self.link is None:
            return
        beat = node_pb2.WorkerBeat(state=self.state, completed=self.completed, resident=_resident_bytes(),
                                   refused=self.table.refused)
        beat.queued = sum(lane.queued + lane.running for lane in self.lanes.values())
        beat.running = sum(lane.running for lane in self.lanes.values())
        self.link.send(node_pb2.WorkerReport(beat=beat))

    def on_order(self, order):
        which = order.WhichOneof("order")
        if which == "stop":
            self.stop(order.stop.reason, order.stop.deadline_ms / 1000)
        elif which == "drain":
            self.stop("it is drained", order.drain.deadline_ms / 1000)
        elif which == "peer_lost" and order.peer_lost.epoch == self.flags.epoch:
            lost = order.peer_lost
            log.error("rank %d of this group is lost: %s", lost.rank, lost.reason)
            self.lanes["control"].submit(lambda: self.actor.on_peer_lost(lost.rank, lost.reason))
        elif which == "fence":
            self.table.raise_fence(order.fence.group, order.fence.min_epoch)

    def stop(self, reason, grace):
        if self.stopping is not None:
            return
        grace = min(max(grace, 0.0), LONGEST_GRACE)
        log.info("stopping: %s", reason)
        # Whatever hangs, this process is gone by its deadline.
        timer = threading.Timer(grace, os._exit, (0,))
        timer.daemon = True
        timer.start()
        self.state = actor_pb2.ACTOR_STATE_DRAINING
        self.table.drain(reason)
        self._report_beat()
        self.actor.on_stop(reason)
        self.stopping = asyncio.create_task(self._end(reason, time.monotonic() + grace - 0.2))

    async def _end(self, reason, until):
        while self.table.under_way() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)  # for the last replies to be written
        self.table.close_all(CallError("UNAVAILABLE", f"{self.flags.actor_id} stops: {reason}"))
        await self.server.stop(max(0.0, min(1.0, until - time.monotonic())))
        self.over.set()

    # ---- Calls
    def admit(self, call):
        return self.lanes[call.method.lane].submit(lambda: self._run(call))

    def _run(self, call):
        """On the lane's thread."""
        error, payload = call.session.may_run(call), b""
        try:
            if error is None:
                result = self.handlers[call.method.name](call.method.parse(call.payload), call.context)
                if call.method.streaming:
                    for item in result:
                        if not call.take_credit():
                            result.close()
                            raise CallError("CANCELLED", "the caller cancelled the call", outcome="UNKNOWN")
                        self.loop.call_soon_threadsafe(call.session.send_item, call, to_bytes(item))
                else:
                    payload = to_bytes(result)
        except CallError as raised:
            error = raised
        except Exception as raised:  # a bug of the handler's: the caller is told, the actor goes on
            traceback.print_exc()
            error = CallError("UNKNOWN", f"{type(raised).__name__}: {raised}", outcome="FAILED")
        try:
            self.loop.call_soon_threadsafe(self._finish, call, error, payload)
        except RuntimeError:
            pass  # the loop has ended

    def _finish(self, call, error, payload):
        self.completed += 1
        call.session.finish(call, error, payload)

    # ---- CallService
    def _services(self):
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler("manta.v1.CallService", {
            "Open": stream(self.open, call_pb2.CallBatch.FromString, call_pb2.ReplyBatch.SerializeToString),
            "Invoke": unary(self.invoke, call_pb2.InvokeRequest.FromString, call_pb2.InvokeReply.SerializeToString),
            "QueryCalls": unary(self.query_calls, call_pb2.QueryCallsRequest.FromString,
                                call_pb2.QueryCallsReply.SerializeToString),
            "Transfer": grpc.stream_unary_rpc_method_handler(self.transfer, call_pb2.TransferChunk.FromString,
                                                             call_pb2.TransferReply.SerializeToString),
        })

    async def _check_token(self, context):
        metadata = {key: value for key, value in context.invocation_metadata()}
        token = metadata.get(credentials.TOKEN_KEY, "")
        token = token.split()[0] if token.split() else ""
        roles = self.keys.roles_of(token)
        if not roles:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not this cluster's")
        if self.certificates is not None:
            roles = roles & {credentials.peer_role(self.certificates, context.auth_context())}
        if not roles & {"admin", "worker"}:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "actors are called by roles admin and worker")

    async def _abort(self, context, error):
        await context.abort(_CODES[error.code], error.message,
                            (("grpc-status-details-bin", error.info.SerializeToString()),))

    async def open(self, batches, context):
        await self._check_token(context)
        batches = batches.__aiter__()
        try:
            first = await batches.__anext__()
        except StopAsyncIteration:
            return
        if not first.HasField("open"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream's first batch must open a session")
        link, opened = Link(), call_pb2.SessionOpened()
        try:
            session = self.table.open(first.open, link, opened)
        except CallError as error:
            await self._abort(context, error)

        async def read():
            async for batch in batches:
                if not session.on_batch(link, batch):
                    link.close(CallError("INVALID_ARGUMENT", "a call's number is 0, or too many are without a reply"))
            link.close(False)  # the caller says goodbye
            if session.link is link:
                self.table.close(session)

        reader = asyncio.create_task(read())
        try:
            await context.write(call_pb2.ReplyBatch(opened=opened))
            while True:
                await link.wake.wait()
                if link.replies or link.heartbeat:
                    await context.write(link.take())
                elif link.closed is not None:
                    break
                else:
                    link.wake.clear()
            if link.closed:
                await self._abort(context, link.closed)
        finally:
            session.detach(link)
            reader.cancel()

    async def invoke(self, request, context):
        await self._check_token(context)
        names = [method.name for method in self.table.methods]
        if request.method_name not in names or self.table.methods[names.index(request.method_name)].streaming:
            there = request.method_name in names
            what = "Invoke cannot stream the results of " if there else "there is no method "
            await self._abort(context, CallError("UNIMPLEMENTED", what + request.method_name, outcome="NOT_STARTED"))
        request.open.session = 0
        link, opened = Link(), call_pb2.SessionOpened()
        try:
            session = self.table.open(request.open, link, opened)
        except CallError as error:
            await self._abort(context, error)
        try:
            call = request.call
            call.seq, call.method = 1, names.index(request.method_name)
            if not call.deadline_ms:
                left = context.time_remaining()
                call.deadline_ms = LONGEST_INVOKE_MS if left is None else max(1, min(int(left * 1000), LONGEST_INVOKE_MS))
            session.on_batch(link, call_pb2.CallBatch(calls=[call]))
            while not link.replies and link.closed is None:
                await link.wake.wait()
                link.wake.clear()
            if link.replies:
                return call_pb2.InvokeReply(reply=link.replies[0])
            await self._abort(context, link.closed)
        finally:
            self.table.close(session)  # answered, or its caller has gone: then what runs is cancelled

    async def query_calls(self, request, context):
        await self._check_token(context)
        until = time.monotonic() + min(request.wait_ms / 1000, 30)
        try:
            while True:
                reply = self.table.query(request)
                del request.release[:]
                if time.monotonic() >= until or not any(r.state == call_pb2.CALL_STATE_RUNNING for r in reply.results):
                    return reply
                await asyncio.sleep(0.02)
        except CallError as error:
            await self._abort(context, error)

    async def transfer(self, chunks, context):
        await self._check_token(context)
        caller, number, total, data = b"", 0, 0, bytearray()
        async for chunk in chunks:
            if not caller:
                caller, number, total = chunk.caller.id, chunk.transfer, chunk.total
                if total + self.table.transfer_bytes() > MAX_TRANSFERS:
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many bytes of arguments wait for their calls")
            if chunk.offset != len(data) or len(data) + len(chunk.data) > total:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a chunk does not follow the one before")
            data += chunk.data
        if not caller or len(data) != total:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a transfer ended early")
        self.table.put_transfer(caller, number, bytes(data))
        return call_pb2.TransferReply(received=total)


def _resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

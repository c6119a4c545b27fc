"""Calling actors: Client finds them by their names and makes handles; a handle follows its actor through restarts."""

import os
import secrets
import threading
import time

import grpc

from manta import credentials
from manta.actor import to_bytes
from manta.errors import CallError
from manta.v1 import actor_pb2, call_pb2, cluster_pb2, common_pb2

EXPLAIN_WITHIN = 1.0  # seconds that a lost call waits for the reason of its actor's end
MAX_RETIRED = 32  # channels


def _cluster_dir():
    """As the command line finds it: MANTA_DIR, the run started from here last, ~/.manta/default."""
    given = os.environ.get("MANTA_DIR", "")
    if given:
        return given
    for folder in ("logs/latest", os.path.expanduser("~/.manta/default")):
        if os.path.exists(os.path.join(folder, "controller.address")):
            return folder
    raise FileNotFoundError("no cluster: neither logs/latest nor ~/.manta/default is one; give a folder, set MANTA_DIR, "
                            "or start one with `manta launch`")


class Client:
    """A connection to a cluster. Thread-safe; calls block.

    Client(dir)                     the folder of `manta launch` or of a run; by default as the command line finds it
    Client(address=..., token_file=...)
    Within an actor of the cluster, Client() is that actor's: its calls carry its name and epoch. Where the environment
    variable MANTA_TLS_DIR names a folder of certificates, connections are mutual TLS.
    """

    def __init__(self, dir=None, address=None, token_file=None):
        caller = call_pb2.CallerId(id=secrets.token_bytes(16))
        env = os.environ.get
        if dir is None and address is None and env("MANTA_ACTOR_ID") and env("MANTA_CONTROLLER"):
            address, token_file = env("MANTA_CONTROLLER"), token_file or env("MANTA_TOKEN_FILE")
            caller.actor_id, caller.epoch = env("MANTA_ACTOR_ID"), int(env("MANTA_EPOCH", "0"))
        elif address is None:
            dir = dir or _cluster_dir()
            with open(os.path.join(dir, "controller.address"), encoding="ascii") as file:
                address = file.read().strip()
            token_file = token_file or os.path.join(dir, "token")
        if token_file is None:
            raise ValueError("an address needs a token_file")
        self.address = address
        self._keys = credentials.Keys.from_file(token_file)
        self._certificates = credentials.Certificates.from_environment("worker" if caller.actor_id else "admin")
        self._caller = caller
        self._lock = threading.Lock()
        self._channels = {}
        self._retired = []  # of certificates that were replaced; calls may still be under way

    def actor(self, name, rank=0):
        """Of a group's name its rank `rank`; or of an actor's id, "JOB/ROLE-RANK"."""
        return ActorHandle(self, name, rank)

    def resolve(self, name, timeout=10.0):
        """The group's ranks as manta.v1.ActorInfo, once all are ready. NOT_FOUND, or why they are not."""
        until = time.monotonic() + timeout
        by_id = name.rpartition("-")[2].isdigit()
        request = cluster_pb2.ResolveRequest(actor_id=name) if by_id else cluster_pb2.ResolveRequest(name=name)
        last = None
        while time.monotonic() < until:
            stream = self._rpc(self.address, "unary_stream", "/manta.v1.ClusterService/Resolve",
                               cluster_pb2.ResolveReply)(request, timeout=max(0.001, until - time.monotonic()),
                                                         metadata=self._metadata())
            try:
                for last in stream:
                    ready = all(r.state == actor_pb2.ACTOR_STATE_READY and r.address for r in last.ranks)
                    if last.ranks and ready:
                        return list(last.ranks)
                    if by_id and not last.ranks:
                        raise CallError.from_proto(last.failed)
            except grpc.RpcError as error:
                failure = _error_of(error)
                if failure.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                    raise failure from None
            finally:
                stream.cancel()
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))  # a controller that is started again
        failed = CallError.from_proto(last.failed) if last is not None else None
        if failed is not None:
            raise CallError(failed.code, failed.message, outcome="NOT_STARTED", info=failed.info)
        state = f"{name} is not ready" if last is not None else f"nothing is called {name}"
        raise CallError("DEADLINE_EXCEEDED", f"{state} within {timeout:g} s", outcome="NOT_STARTED")

    def close(self):
        with self._lock:
            channels = [channel for _, channel in self._channels.values()] + self._retired
            self._channels, self._retired = {}, []
        for channel in channels:
            channel.close()

    def _metadata(self):
        return ((credentials.TOKEN_KEY, self._keys.token),)

    def _rpc(self, address, kind, path, reply):
        stamp = self._certificates.current()[0] if self._certificates is not None else None
        with self._lock:
            opened_with, channel = self._channels.get(address, (None, None))
            if channel is None or opened_with != stamp:
                if channel is not None:
                    self._retired.append(channel)
                    if len(self._retired) > MAX_RETIRED:
                        self._retired.pop(0).close()
                channel = credentials.open_channel(address, self._certificates,
                                                   "admin" if address == self.address else "worker")
                self._channels[address] = stamp, channel
        return getattr(channel, kind)(path, request_serializer=lambda m: m.SerializeToString(),
                                      response_deserializer=reply.FromString)

    def _died(self, actor_id, epoch):
        """How that actor ended, if it is known soon; else None."""
        until = time.monotonic() + EXPLAIN_WITHIN
        request = cluster_pb2.ResolveRequest(actor_id=actor_id)
        stream = self._rpc(self.address, "unary_stream", "/manta.v1.ClusterService/Resolve",
                           cluster_pb2.ResolveReply)(request, timeout=EXPLAIN_WITHIN, metadata=self._metadata())
        try:
            for reply in stream:
                for rank in reply.ranks:
                    if rank.epoch == epoch and rank.died.code:
                        return CallError.from_proto(rank.died)
                if reply.failed.code or time.monotonic() > until:
                    return CallError.from_proto(reply.failed) if reply.failed.code else None
        except grpc.RpcError:
            pass
        finally:
            stream.cancel()
        return None


class ActorHandle:
    """One actor. Thread-safe."""

    def __init__(self, client, name, rank):
        self._client, self._name, self._rank = client, name, rank
        self._lock = threading.Lock()
        self._known = None  # ActorInfo

    def call(self, method, request=b"", reply=bytes, timeout=30.0, key=""):
        """Calls a method and waits for its reply: a message of class `reply`, or bytes.

        `request` is a message or bytes; `timeout` seconds are for everything. CallError says what is known of the
        call's effect. It is sent again only where it is known not to have been started.
        """
        until = time.monotonic() + timeout
        payload = to_bytes(request)
        while True:
            actor = self._find(until)
            try:
                got = self._invoke(actor, method, payload, key, until)
            except CallError as error:
                lost = error.outcome != "FAILED" and error.code in ("UNAVAILABLE", "FAILED_PRECONDITION")
                if lost:
                    self._forget(actor)
                if not lost or error.outcome != "NOT_STARTED" or until - time.monotonic() < 0.1:
                    raise self._explained(error, actor) from None
                time.sleep(0.05)  # it stops, or is being started again
                continue
            if reply is bytes:
                return got
            message = reply()
            message.ParseFromString(got)
            return message

    def _find(self, until):
        with self._lock:
            if self._known is not None:
                return self._known
        ranks = self._client.resolve(self._name, max(0.001, until - time.monotonic()))
        found = [r for r in ranks if r.rank == self._rank] if len(ranks) > 1 or self._rank else ranks
        if not found:
            raise CallError("NOT_FOUND", f"{self._name} has no rank {self._rank}", outcome="NOT_STARTED")
        with self._lock:
            self._known = found[0]
        return found[0]

    def _forget(self, actor):
        with self._lock:
            if self._known is actor:
                self._known = None

    def _invoke(self, actor, method, payload, key, until):
        left = until - time.monotonic()
        if left <= 0:
            raise CallError("DEADLINE_EXCEEDED", "the call's deadline passed before it was sent", outcome="NOT_STARTED")
        request = call_pb2.InvokeRequest(method_name=method)
        request.open.caller.CopyFrom(self._client._caller)
        request.open.actor_id, request.open.epoch = actor.actor_id, actor.epoch
        request.call.payload, request.call.key = payload, key
        request.call.deadline_ms = max(1, int(left * 1000))
        invoke = self._client._rpc(actor.address, "unary_unary", "/manta.v1.CallService/Invoke", call_pb2.InvokeReply)
        try:
            reply = invoke(request, timeout=left, metadata=self._client._metadata()).reply
        except grpc.RpcError as error:
            raise _error_of(error) from None
        if reply.error.code:
            raise CallError.from_proto(reply.error)
        return reply.payload

    def _explained(self, error, actor):
        if error.code != "UNAVAILABLE" or error.info.actor:
            return error
        died = self._client._died(actor.actor_id, actor.epoch)
        if died is None:
            return error
        return CallError(died.code, died.message, outcome=error.outcome or "UNKNOWN", info=died.info)


def _error_of(error):
    """Of a failed RPC: what the server has said of it, or what its code tells of the call's effect."""
    code = error.code().name
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = common_pb2.ErrorInfo()
            try:
                info.ParseFromString(value)
            except Exception:
                break
            return CallError(code, error.details() or "", info=info)
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED"):
        outcome = "NOT_STARTED"
    elif code == "UNAVAILABLE":
        outcome = "NOT_STARTED" if "failed to connect" in (error.details() or "").lower() else "UNKNOWN"
    elif code in ("CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL"):
        outcome = "UNKNOWN"
    else:
        outcome = "FAILED"
    details = error.details() or ""
    if "Hostname Verification" in details:
        details += ("; the server's certificate does not say that it is of this job and role: one that an earlier Manta "
                    "made lacks the name for it (`manta init-certs` renews it)")
    return CallError(code, details, outcome=outcome)

"""The actor's half of calls: sessions, at most once, cancellation, results under keys (common/call/core in C++).

A session is one caller's: it outlives the stream that it came on, for two minutes, so that a stream that breaks costs
nothing. A call is admitted only if its number is greater than all that were seen before; replies are kept until the
caller has acknowledged them, and sent again on the next stream. Everything here runs on the server's event loop; only
handlers run elsewhere.
"""

import asyncio
import secrets
import threading
import time

from manta.actor import Context
from manta.errors import CallError
from manta.v1 import call_pb2

WINDOW = 4096  # calls of a session without an acknowledged reply
MAX_SESSIONS = 1024
SESSION_TTL = 120.0
MAX_KEYS = 4096
MAX_CREDIT = 1024
BATCH = 256

QUEUED, RUNNING, DONE = range(3)


def group_of(actor_id):
    return actor_id.rpartition("-")[0]


class ServerCall:

    def __init__(self, session, call, method):
        self.session = session
        self.seq = call.seq
        self.key = call.key
        self.method = method
        self.state = QUEUED
        self.ran = False
        self.reply = None
        self.sent_items = False
        self.context = Context(session.caller, time.monotonic() + call.deadline_ms / 1000.0)
        self.payload = call.payload
        self.transfer = call.transfer
        self._credit = min(call.item_credit, MAX_CREDIT)
        self._credit_came = threading.Condition()

    def cancel(self):
        self.context._cancelled.set()
        with self._credit_came:
            self._credit_came.notify_all()

    def give_credit(self, items):
        with self._credit_came:
            self._credit = min(self._credit + items, MAX_CREDIT)
            self._credit_came.notify_all()

    def take_credit(self):
        """On the handler's thread: False once the call is cancelled or its deadline has passed."""
        with self._credit_came:
            while self._credit == 0 and not self.context.cancelled:
                left = self.context.time_left()
                if left <= 0:
                    return False
                self._credit_came.wait(left)
            if self.context.cancelled:
                return False
            self._credit -= 1
            return True


class Link:
    """One stream of a session: what is to be written on it."""

    def __init__(self):
        self.replies = []
        self.heartbeat = False
        self.closed = None  # a CallError, or False for a quiet end
        self.wake = asyncio.Event()

    def push(self, reply):
        self.replies.append(reply)
        self.wake.set()

    def close(self, why):
        if self.closed is None:
            self.closed = why
        self.wake.set()

    def take(self):
        batch = call_pb2.ReplyBatch(replies=self.replies[:BATCH], heartbeat=1 if self.heartbeat else 0)
        del self.replies[:BATCH]
        self.heartbeat = False
        if not self.replies and self.closed is None:
            self.wake.clear()
        return batch


class Session:

    def __init__(self, table, number, caller):
        self.table = table
        self.number = number
        self.caller = caller
        self.calls = {}  # by seq: queued, running, and done ones that are not acknowledged
        self.max_seen = 0
        self.link = None
        self.cut_by = None
        self.detached_since = time.monotonic()

    def attach(self, link, opening, opened):
        if self.link is not None:
            self.link.close(CallError("ABORTED", "the session was taken up on another stream"))
        self.link = link
        pending = set(opening.pending)
        for call in list(self.calls.values()):
            if call.state == DONE and call.seq not in pending:
                del self.calls[call.seq]
            elif call.state != DONE and (call.seq not in pending or call.sent_items):
                call.cancel()
        for seq in sorted(pending):
            call = self.calls.get(seq)
            if call is not None and call.state == DONE:
                if call.sent_items:
                    self._fail(call, "ABORTED", "the stream broke between this call's items", "UNKNOWN")
                link.push(call.reply)
            elif seq > self.max_seen:
                opened.never_seen.append(seq)
            elif call is None:
                error = CallError("ABORTED", "its reply is not kept any more", outcome="UNKNOWN")
                link.push(call_pb2.Reply(seq=seq, error=error.to_proto()))
        opened.session = self.number

    def on_batch(self, link, batch):
        """False where no caller of ours would send that."""
        if link is not self.link:
            return True
        for seq in batch.acked:
            self._acked(seq)
        if batch.acked_through:
            for seq in [s for s in self.calls if s <= batch.acked_through]:
                self._acked(seq)
        for call in batch.calls:
            if call.seq == 0 or (call.seq > self.max_seen and len(self.calls) >= WINDOW):
                return False
            if call.seq > self.max_seen:  # else seen before: whatever became of it, it is not run again
                self.max_seen = call.seq
                self._begin(call)
        for seq in batch.cancel:
            if seq in self.calls and self.calls[seq].state != DONE:
                self.calls[seq].cancel()
        for credit in batch.credit:
            if credit.seq in self.calls:
                self.calls[credit.seq].give_credit(credit.items)
        if batch.heartbeat:
            link.heartbeat = True
            link.wake.set()
        return True

    def _begin(self, message):
        table = self.table
        method = table.methods[message.method] if message.method < len(table.methods) else None
        call = ServerCall(self, message, method)
        self.calls[call.seq] = call
        refusal = self.cut_by or table.draining
        if refusal is None and method is None:
            refusal = CallError("UNIMPLEMENTED", f"there is no method {message.method}")
        if refusal is None and message.HasField("shm"):
            refusal = CallError("FAILED_PRECONDITION", "cannot read shared memory: send the argument in chunks")
        if refusal is None and call.transfer:
            call.payload = table.take_transfer(self.caller.id, call.transfer)
            if call.payload is None:
                refusal = CallError("FAILED_PRECONDITION", f"transfer {call.transfer} has not come, or was dropped")
        if refusal is None and call.key:
            refusal = table.begin_key(self.caller.id, call.key)
        if refusal is None and not table.admit(call):
            refusal = CallError("RESOURCE_EXHAUSTED", f"the queue of lane {method.lane} is full")
            table.forget_key(self.caller.id, call.key)
        if refusal is not None:
            table.refused += 1
            self._fail(call, refusal.code, refusal.message, "NOT_STARTED")
            self._send(call)

    def may_run(self, call):
        """On the handler's thread. None, or why it is not run."""
        if self.cut_by is not None:
            return CallError(self.cut_by.code, self.cut_by.message, outcome="NOT_STARTED")
        if call.context.cancelled:
            return CallError("CANCELLED", "cancelled before its turn", outcome="NOT_STARTED")
        if call.context.time_left() <= 0:
            return CallError("DEADLINE_EXCEEDED", "its deadline passed before its turn", outcome="NOT_STARTED")
        call.state = RUNNING
        call.ran = True
        return None

    def finish(self, call, error, payload):
        if call.state == DONE:
            return
        if error is not None:
            self._fail(call, error.code, error.message, error.outcome or ("FAILED" if call.ran else "NOT_STARTED"), error.info)
        else:
            call.state = DONE
            call.reply = call_pb2.Reply(seq=call.seq, payload=payload)
        call.payload = b""
        if call.key:
            self.table.end_key(self.caller.id, call.key, call.reply, call.ran)
        self._send(call)

    def send_item(self, call, payload):
        if self.link is None:
            call.cancel()  # items are not kept
            return
        call.sent_items = True
        self.link.push(call_pb2.Reply(seq=call.seq, payload=payload, more=True))

    def detach(self, link):
        if link is self.link:
            self.link = None
            self.detached_since = time.monotonic()

    def cut(self, why, cancel_running):
        self.cut_by = self.cut_by or why
        if self.link is not None:
            self.link.close(CallError(why.code, why.message, outcome="NOT_STARTED"))
            self.link = None
        for call in list(self.calls.values()):
            if call.state == QUEUED or (cancel_running and call.state == RUNNING):
                call.cancel()

    def _acked(self, seq):
        if seq in self.calls and self.calls[seq].state == DONE:
            del self.calls[seq]

    def _fail(self, call, code, message, outcome, info=None):
        error = CallError(code, message, outcome=outcome, info=info)
        call.state = DONE
        call.reply = call_pb2.Reply(seq=call.seq, error=error.to_proto())

    def _send(self, call):
        if self.link is not None:
            self.link.push(call.reply)


class CallTable:
    """admit(call) hands a call to its lane; False where that is full."""

    def __init__(self, actor_id, epoch, methods, admit):
        self.actor_id = actor_id
        self.epoch = epoch
        self.methods = methods
        self.admit = admit
        self.sessions = {}
        self.draining = None
        self.refused = 0
        self._next = secrets.randbits(47) << 16
        self._fences = {}
        self._incarnations = {}
        self._keyed = {}
        self._transfers = {}

    def method_infos(self):
        return [
            call_pb2.MethodInfo(name=m.name, lane=m.lane, idempotent=m.idempotent, streaming=m.streaming)
            for m in self.methods
        ]

    def open(self, opening, link, opened):
        caller = opening.caller
        if opening.actor_id != self.actor_id or opening.epoch != self.epoch:
            raise CallError("FAILED_PRECONDITION", f"this is {self.actor_id} of epoch {self.epoch}, not "
                            f"{opening.actor_id} of epoch {opening.epoch}", outcome="NOT_STARTED")
        self._check(caller)
        if opening.session:
            session = self.sessions.get(opening.session)
            if session is None or session.caller.id != caller.id:
                raise CallError("ABORTED", f"the session with {self.actor_id} is over and forgotten", outcome="UNKNOWN")
        else:
            if self.draining is not None:
                raise CallError(self.draining.code, self.draining.message, outcome="NOT_STARTED")
            if len(self.sessions) >= MAX_SESSIONS:
                raise CallError("RESOURCE_EXHAUSTED", f"{self.actor_id} has {MAX_SESSIONS} sessions; it takes no more",
                                outcome="NOT_STARTED")
            self._seal_older(caller)
            self._next += 1
            session = self.sessions[self._next] = Session(self, self._next, caller)
        opened.epoch = self.epoch
        opened.max_in_flight = WINDOW
        opened.methods.extend(self.method_infos())
        session.attach(link, opening, opened)
        return session

    def close(self, session):
        self.sessions.pop(session.number, None)
        session.cut(CallError("CANCELLED", "the caller ended its session"), cancel_running=True)

    def close_all(self, why):
        for session in list(self.sessions.values()):
            session.cut(why, cancel_running=True)
        self.sessions.clear()

    def drain(self, reason):
        self.draining = self.draining or CallError("UNAVAILABLE", f"{self.actor_id} stops: {reason}")

    def raise_fence(self, group, min_epoch):
        self._fences[group] = max(min_epoch, self._fences.get(group, 0))
        for session in list(self.sessions.values()):
            caller = session.caller
            if caller.actor_id and group_of(caller.actor_id) == group and caller.epoch < min_epoch:
                del self.sessions[session.number]
                session.cut(CallError("FAILED_PRECONDITION", f"group {group} is in epoch {min_epoch} by now"), True)

    def tick(self):
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if session.link is None and now - session.detached_since >= SESSION_TTL:
                del self.sessions[session.number]
                session.cut(CallError("ABORTED", "the caller has been gone for too long"), True)
        for name, (_, came) in list(self._transfers.items()):
            if now - came > 60:
                del self._transfers[name]

    def under_way(self):
        return sum(call.state != DONE for session in self.sessions.values() for call in session.calls.values())

    def _check(self, caller):
        if not 1 <= len(caller.id) <= 64:
            raise CallError("INVALID_ARGUMENT", "a caller's id has 1 to 64 bytes", outcome="NOT_STARTED")
        fence = self._fences.get(group_of(caller.actor_id), 0) if caller.actor_id else 0
        if caller.epoch < fence:
            raise CallError("FAILED_PRECONDITION", f"{caller.actor_id} of epoch {caller.epoch} is fenced off: epoch "
                            f"{fence} is the oldest that may call", outcome="NOT_STARTED")
        newest = self._incarnations.get(caller.id, 0)
        if caller.incarnation < newest:
            raise CallError("FAILED_PRECONDITION", f"incarnation {caller.incarnation} of this caller is over: {newest} "
                            "has come", outcome="NOT_STARTED")

    def _seal_older(self, caller):
        if not caller.incarnation:
            return
        if caller.id not in self._incarnations and len(self._incarnations) >= 65536:
            raise CallError("RESOURCE_EXHAUSTED", "65536 durable callers are known; no more are taken",
                            outcome="NOT_STARTED")
        self._incarnations[caller.id] = caller.incarnation
        for session in list(self.sessions.values()):
            if session.caller.id == caller.id and session.caller.incarnation < caller.incarnation:
                del self.sessions[session.number]
                session.cut(CallError("FAILED_PRECONDITION", "a newer incarnation of this caller has come"), False)

    # ---- Results under keys
    def begin_key(self, caller, key):
        if (caller, key) in self._keyed:
            return CallError("ALREADY_EXISTS", f"a call with the key {key} was made already: ask for its result")
        if len(self._keyed) >= MAX_KEYS:
            return CallError("RESOURCE_EXHAUSTED", f"{MAX_KEYS} results are kept under keys; release some first")
        self._keyed[caller, key] = None
        return None

    def forget_key(self, caller, key):
        self._keyed.pop((caller, key), None)

    def end_key(self, caller, key, reply, ran):
        if ran:
            self._keyed[caller, key] = reply
        else:
            self.forget_key(caller, key)  # it never ran: another may run under this key

    def query(self, request):
        self._check(request.caller)
        self._seal_older(request.caller)
        for key in request.release:
            if self._keyed.get((request.caller.id, key)) is not None:
                self.forget_key(request.caller.id, key)
        reply = call_pb2.QueryCallsReply()
        for key in request.keys:
            result = reply.results.add(key=key, state=call_pb2.CALL_STATE_NEVER_SEEN)
            if (request.caller.id, key) not in self._keyed:
                continue
            kept = self._keyed[request.caller.id, key]
            result.state = call_pb2.CALL_STATE_RUNNING if kept is None else call_pb2.CALL_STATE_DONE
            if kept is not None:
                result.reply.CopyFrom(kept)
        return reply

    # ---- Large arguments
    def put_transfer(self, caller, number, data):
        self._transfers[caller, number] = (data, time.monotonic())

    def take_transfer(self, caller, number):
        found = self._transfers.pop((caller, number), None)
        return None if found is None else found[0]

    def transfer_bytes(self):
        return sum(len(data) for data, _ in self._transfers.values())

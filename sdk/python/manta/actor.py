"""What an actor's author writes: a class with methods, and hooks for what happens to it."""

import inspect
import threading
import time

from manta.errors import CallError


def method(request=bytes, *, name=None, lane="work", idempotent=False):
    """Marks a method of an Actor as one that callers may call: `def f(self, request, context)`.

    request     a protobuf message's class, or bytes.
    lane        calls of one lane run one after the other (Actor.lanes says otherwise); "control" never waits behind work.
    idempotent  callers' libraries may send it again where it is unknown whether it has run.

    It returns a message, bytes or None; one that yields streams its results. CallError answers with that error, any
    other exception with UNKNOWN, and its trace is in the log.
    """

    def mark(function):
        function.manta_method = Method(name or function.__name__, request, lane, idempotent,
                                       inspect.isgeneratorfunction(function))
        return function

    return mark


class Method:

    def __init__(self, name, request, lane, idempotent, streaming):
        self.name = name
        self.request = request
        self.lane = lane
        self.idempotent = idempotent
        self.streaming = streaming

    def parse(self, payload):
        if self.request is bytes:
            return payload
        message = self.request()
        try:
            message.ParseFromString(payload)
        except Exception as error:
            raise CallError("INVALID_ARGUMENT", f"the argument is no {message.DESCRIPTOR.full_name}: {error}",
                            outcome="NOT_STARTED") from error
        return message


def to_bytes(result):
    if result is None:
        return b""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result)
    return result.SerializeToString()


class Context:
    """What a handler sees of its call. Thread-safe."""

    def __init__(self, caller, deadline):
        self.caller = caller  # manta.v1.CallerId
        self.deadline = deadline  # by time.monotonic()
        self._cancelled = threading.Event()

    @property
    def cancelled(self):
        return self._cancelled.is_set()

    def time_left(self):
        return max(0.0, self.deadline - time.monotonic())

    def wait_cancelled(self, timeout):
        return self._cancelled.wait(timeout)


class Actor:
    """An actor is one process; its state is the object's. Override what is needed."""

    lanes = {}  # name -> (threads, length of its queue); (1, 1024) for those that are not here

    def setup(self):
        """Before it is ready: load what has to be loaded. The group's start_timeout_s counts."""

    def on_stop(self, reason):
        """It is to end: called once, while calls still run. Must not block."""

    def on_peer_lost(self, rank, reason):
        """A rank of its group is gone. Must not block."""

    # Filled in by serve().
    actor_id = "standalone-0"
    rank = 0
    epoch = 0
    args = ()
    _link = None

    def progress(self, step):
        """Reports a step: what the group's watchdog (progress_timeout_s) looks at."""
        if self._link is not None:
            self._link.progress(step)

    def note(self, text):
        """A line for `manta describe`."""
        if self._link is not None:
            self._link.note(text)

    @classmethod
    def methods(cls):
        found = []
        for name in dir(cls):
            function = getattr(cls, name, None)
            if hasattr(function, "manta_method"):
                found.append((function.manta_method, name))
        return found

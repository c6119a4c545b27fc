"""Errors as they cross processes: a code, a message, and what is known of the call's effect."""

from manta.v1 import common_pb2

CODES = [
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"
]
_ORIGINS = {
    "INVALID_ARGUMENT": common_pb2.ORIGIN_USER,
    "NOT_FOUND": common_pb2.ORIGIN_USER,
    "UNIMPLEMENTED": common_pb2.ORIGIN_USER,
    "OUT_OF_RANGE": common_pb2.ORIGIN_USER,
    "DEADLINE_EXCEEDED": common_pb2.ORIGIN_TIMEOUT,
    "CANCELLED": common_pb2.ORIGIN_CANCELLED,
    "RESOURCE_EXHAUSTED": common_pb2.ORIGIN_OVERLOADED,
    "UNAVAILABLE": common_pb2.ORIGIN_WORKER_DIED,
}


class CallError(Exception):
    """A call that failed; also what a handler raises to answer with an error of its own.

    code     "INVALID_ARGUMENT", "UNAVAILABLE", ...: the names of gRPC's codes.
    outcome  "NOT_STARTED" (safe to send again), "UNKNOWN" (it may have run), "FAILED" (it ran and failed); "" where
             nobody has said.
    info     the manta.v1.ErrorInfo: who is answerable, which process died and how, its last lines.
    """

    def __init__(self, code, message, outcome="", info=None):
        if code not in CODES or code == "OK":
            raise ValueError(f"{code!r} is no code of an error; there are {', '.join(CODES[1:])}")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.info = common_pb2.ErrorInfo()
        if info is not None:
            self.info.CopyFrom(info)
        else:
            self.info.rank = -1
            self.info.exit_code = -1
            self.info.origin = _ORIGINS.get(code, common_pb2.ORIGIN_INTERNAL)
        if outcome:
            self.info.outcome = common_pb2.CallOutcome.Value("CALL_OUTCOME_" + outcome)
            self.info.retryable = outcome == "NOT_STARTED" and code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")

    @property
    def outcome(self):
        name = common_pb2.CallOutcome.Name(self.info.outcome)[len("CALL_OUTCOME_"):]
        return "" if name == "UNSPECIFIED" else name

    def to_proto(self):
        return common_pb2.Status(code=CODES.index(self.code), message=self.message, error=self.info)

    @classmethod
    def from_proto(cls, status):
        """Of a manta.v1.Status; None where that says OK."""
        if status.code == 0:
            return None
        code = CODES[status.code] if 0 < status.code < len(CODES) else "UNKNOWN"
        return cls(code, status.message, info=status.error if status.HasField("error") else None)

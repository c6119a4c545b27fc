"""Actors and their callers in Python: what common/actor is in C++, over the same messages.

    class Counter(manta.Actor):                     counter = manta.Client().actor("counter")
        @manta.method(Int64Value)                   reply = counter.call("add", Int64Value(value=2), Int64Value)
        def add(self, request, context): ...

    manta.serve(Counter())

docs/actors.md has whole programs. Needs grpcio and protobuf.
"""

from manta.actor import Actor, method
from manta.client import ActorHandle, Client
from manta.errors import CallError
from manta.server import serve

__all__ = ["Actor", "ActorHandle", "CallError", "Client", "method", "serve"]

#!/usr/bin/env python3
"""Ray at the work that bench_actor measures: the same keys, as one JSON object on stdout.

  python tests/bench/ray_side.py [--seconds 1] [--only calls,pipelined,...]

Where Ray cannot be imported it says so on stderr, prints {} and exits 0. What Ray has no counterpart of, or fails at, is
null. Ray's own processes are started and ended by it.
"""
import argparse
import json
import os
import sys
import time

ARGUMENT_BYTES = 256 << 20
PARTS = ["launch", "calls", "pipelined", "eight", "starts", "placements", "arguments"]


def rate(seconds, step):
    """Calls of `step`, which returns how much it did, per second; the first one apart."""
    step()
    done, begin = 0, time.perf_counter()
    while True:
        done += step()
        took = time.perf_counter() - begin
        if took > seconds:
            return done / took


class Side:
    def __init__(self, ray, seconds):
        self.ray, self.seconds, self.out = ray, seconds, {}

        @ray.remote(num_cpus=0)
        class Echo:
            def echo(self, payload):
                return payload

            def size(self, argument):
                return argument.nbytes if hasattr(argument, "nbytes") else len(argument)

        @ray.remote(num_cpus=0)
        class Caller:
            def ready(self):
                return True

            def run(self, actors, seconds, window):
                return rate(seconds, lambda: len(ray.get([a.echo.remote(b"hello") for a in actors for _ in range(window)])))

        self.Echo, self.Caller = Echo, Caller

    def launch(self):
        begin = time.perf_counter()
        self.ray.init(include_dashboard=False, log_to_driver=False, num_cpus=4096, object_store_memory=2 << 30)
        self.out["launch_ready_s"] = time.perf_counter() - begin

    def calls(self):
        actor = self.Echo.remote()

        def one():
            assert self.ray.get(actor.echo.remote(b"hello")) == b"hello"
            return 1

        self.out["calls_sync_per_s"] = rate(self.seconds, one)

    def pipelined(self):
        actor = self.Echo.remote()
        self.out["calls_pipelined_per_s"] = rate(
            self.seconds, lambda: len(self.ray.get([actor.echo.remote(b"hello") for _ in range(1024)])))

    def eight(self):
        actors = [self.Echo.remote() for _ in range(8)]
        callers = [self.Caller.remote() for _ in range(8)]
        self.ray.get([c.ready.remote() for c in callers])
        self.out["calls_8_to_8_per_s"] = sum(self.ray.get([c.run.remote(actors, self.seconds, 64) for c in callers]))

    def starts(self):
        count = 20

        def start():
            actors = [self.Echo.remote() for _ in range(count)]
            self.ray.get([a.echo.remote(b"hello") for a in actors])
            for a in actors:
                self.ray.kill(a)

        begin = time.perf_counter()
        start()
        self.out["actors_started_per_s"] = count / (time.perf_counter() - begin)

    def placements(self):
        from ray.util import placement_group, remove_placement_group

        def some():
            groups = [placement_group([{"CPU": 1}]) for _ in range(64)]
            self.ray.get([g.ready() for g in groups])
            for g in groups:
                remove_placement_group(g)
            return len(groups)

        self.out["placements_per_s"] = rate(self.seconds, some)

    def arguments(self):
        try:
            import numpy
            argument = numpy.full(ARGUMENT_BYTES, ord("x"), dtype=numpy.uint8)  # read without a copy at the other side
        except ImportError:
            argument = b"x" * ARGUMENT_BYTES
        actor = self.Echo.remote()

        def one():
            assert self.ray.get(actor.size.remote(argument)) == ARGUMENT_BYTES
            return 1

        self.out["argument_shm_gb_per_s"] = rate(self.seconds, one) * ARGUMENT_BYTES / 1e9
        self.out["argument_grpc_gb_per_s"] = self.between_nodes(argument)

    def between_nodes(self, argument):
        """Two of Ray's nodes on this machine: the argument goes from one's store to the other's in chunks."""
        self.ray.shutdown()
        from ray.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "object_store_memory": 2 << 30})
        try:
            cluster.add_node(num_cpus=8, resources={"other": 8}, object_store_memory=2 << 30)
            self.ray.init(address=cluster.address, log_to_driver=False)
            actor = self.Echo.options(resources={"other": 1}).remote()

            def one():
                assert self.ray.get(actor.size.remote(argument)) == ARGUMENT_BYTES
                return 1

            return rate(self.seconds, one) * ARGUMENT_BYTES / 1e9
        finally:
            self.ray.shutdown()
            cluster.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only", default="", help=", ".join(PARTS))
    options = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        print("ray_side.py: Ray is not installed for this Python: nothing to compare with", file=sys.stderr)
        print("{}")
        return 0
    side = Side(ray, options.seconds)
    wanted = [p for p in options.only.split(",") if p] or PARTS
    for part in PARTS:
        if part not in wanted and part != "launch":
            continue
        try:
            getattr(side, part)()
        except Exception as error:  # a part of Ray that fails is a gap in the table
            print(f"ray_side.py: {part}: {type(error).__name__}: {error}", file=sys.stderr)
    ray.shutdown()
    print(json.dumps(side.out, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The actor runtime beside Ray, one after the other on this machine.

  python tests/bench/actor_vs_ray.py [--ray-python PYTHON] [--bench build/bin/bench_actor] [--seconds 1]

PYTHON is one that can import ray (default: this one). Without Ray the table has our column alone.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = ["calls_sync_per_s", "calls_pipelined_per_s", "calls_8_to_8_per_s", "actors_started_per_s", "launch_ready_s",
        "placements_per_s", "argument_shm_gb_per_s", "argument_grpc_gb_per_s"]


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    if "{" not in done.stdout:
        sys.exit(f"{' '.join(command)}: no figures in its output: {done.stdout!r}")
    return json.loads(done.stdout[done.stdout.index("{"):done.stdout.rindex("}") + 1])  # Ray writes lines of its own


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ray-python", default=sys.executable)
    parser.add_argument("--bench", default=os.path.join(HERE, "..", "..", "build", "bin", "bench_actor"))
    parser.add_argument("--seconds", default="1")
    options = parser.parse_args()
    ours = run([options.bench, "--json", "--seconds", options.seconds])
    theirs = run([options.ray_python, os.path.join(HERE, "ray_side.py"), "--seconds", options.seconds])
    load = os.getloadavg()[0]
    print(f"{'':32} {'ours':>14} {'Ray':>12} {'ratio':>10}   load {load:.1f}")
    for key in KEYS:
        mine, other = ours.get(key), theirs.get(key)
        ratio = ""
        if mine and other:
            ratio = f"{other / mine if key.endswith('_s') and 'per' not in key else mine / other:.1f}"
        print(f"{key:32} {mine:14.2f} {other if other is None else round(other, 2)!s:>12} {ratio:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

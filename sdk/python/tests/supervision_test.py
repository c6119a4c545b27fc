"""An actor in Python as its shim sees it: ready, beats, orders, the end. The test is the shim."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

try:
    import grpc
except ImportError:
    print("SKIP python-grpcio: this Python has no grpcio")
    sys.exit(77)

import manta
from manta.v1 import actor_pb2, cluster_pb2, node_pb2

PROGRAM = textwrap.dedent("""
    import time
    import manta

    class Worker(manta.Actor):
        def setup(self):
            assert "MANTA_SHIM_FD" not in __import__("os").environ

        @manta.method()
        def step(self, request, context):
            self.progress(int(request))
            self.note("at " + request.decode())
            return self.actor_id.encode()

        @manta.method(lane="slow")
        def sleep(self, request, context):
            time.sleep(float(request))
            return b"slept"

        def on_stop(self, reason):
            print("on_stop:", reason, flush=True)

        def on_peer_lost(self, rank, reason):
            print("on_peer_lost:", rank, reason, flush=True)

    manta.serve(Worker())
""")


class Supervision(unittest.TestCase):

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        program, token = os.path.join(self.dir.name, "worker.py"), os.path.join(self.dir.name, "token")
        with open(program, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("5" * 64 + "\n")
        self.shim, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.shim.settimeout(20)
        env = dict(os.environ, MANTA_ACTOR_ID="job/w-3", MANTA_EPOCH="9", MANTA_TOKEN_FILE=token,
                   MANTA_SHIM_FD=str(theirs.fileno()))
        self.process = subprocess.Popen([sys.executable, program], env=env, pass_fds=[theirs.fileno()],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        theirs.close()
        ready = self.report("ready").ready
        self.assertEqual({m.name for m in ready.methods}, {"step", "sleep"})
        client = manta.Client(address="127.0.0.1:1", token_file=token)
        self.worker = client.actor("job/w-3")
        self.worker._known = cluster_pb2.ActorInfo(actor_id="job/w-3", epoch=9, address=ready.address)

    def tearDown(self):
        self.process.kill()
        self.process.communicate()
        self.shim.close()
        self.dir.cleanup()

    def report(self, kind):
        while True:
            packet = self.shim.recv(256 << 10)
            self.assertTrue(packet, "it has ended")
            report = node_pb2.WorkerReport.FromString(packet)
            if report.WhichOneof("report") == kind:
                return report

    def order(self, **which):
        self.shim.send(node_pb2.WorkerOrder(**which).SerializeToString())

    def ended(self):
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def test_beats_and_reports(self):
        self.assertEqual(self.worker.call("step", b"17", timeout=20), b"job/w-3")
        self.assertEqual(self.report("progress").progress.step, 17)
        self.assertEqual(self.report("note").note.text, "at 17")
        while True:
            beat = self.report("beat").beat
            if beat.completed == 1:
                break
        self.assertEqual(beat.state, actor_pb2.ACTOR_STATE_READY)
        self.assertGreater(beat.resident, 1 << 20)
        self.assertEqual((beat.running, beat.queued), (0, 0))

    def test_stop(self):
        self.order(stop=actor_pb2.StopRequest(deadline_ms=5000, reason="enough"))
        code, out, err = self.ended()
        self.assertEqual(code, 0, err)
        self.assertIn("on_stop: enough", out)

    def test_drain_refuses_and_the_deadline_holds(self):
        with self.assertRaises(manta.CallError) as late:
            self.worker.call("sleep", b"30", timeout=0.3)
        self.assertEqual(late.exception.outcome, "UNKNOWN")
        begin = time.monotonic()
        self.order(drain=node_pb2.DrainOrder(deadline_ms=1500))
        while True:
            if self.report("beat").beat.state == actor_pb2.ACTOR_STATE_DRAINING:
                break
        with self.assertRaises(manta.CallError) as refused:
            self.worker._invoke(self.worker._known, "step", b"1", "", time.monotonic() + 5)
        self.assertIn(refused.exception.code, ("UNAVAILABLE",))
        self.assertEqual(self.ended()[0], 0)
        self.assertLess(time.monotonic() - begin, 6)

    def test_a_lost_peer_and_a_fence(self):
        self.order(peer_lost=actor_pb2.PeerLostRequest(epoch=8, rank=1, reason="of another epoch"))
        self.order(peer_lost=actor_pb2.PeerLostRequest(epoch=9, rank=2, reason="killed"))
        self.order(fence=node_pb2.Fence(group="job/driver", min_epoch=5))
        caller = self.worker._client._caller
        caller.actor_id, caller.epoch = "job/driver-0", 5
        self.assertEqual(self.worker.call("step", b"1", timeout=20), b"job/w-3")
        caller.epoch = 4
        with self.assertRaises(manta.CallError) as fenced:
            self.worker._invoke(self.worker._known, "step", b"1", "", time.monotonic() + 5)
        self.assertIn("fenced off", fenced.exception.message)
        self.assertEqual(fenced.exception.outcome, "NOT_STARTED")
        self.process.send_signal(signal.SIGTERM)
        code, out, err = self.ended()
        self.assertEqual(code, 0, err)
        self.assertIn("on_peer_lost: 2 killed", out)
        self.assertNotIn("another epoch", out)

    def test_without_its_shim_it_ends(self):
        self.shim.close()
        self.assertEqual(self.ended()[0], 0)


if __name__ == "__main__":
    unittest.main()

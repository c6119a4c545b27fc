"""A worker's link to its supervisor: descriptor MANTA_SHIM_FD, SOCK_SEQPACKET, one message a packet (shim.proto).

Up go WorkerReports: ready once, a beat a second, progress and notes. Down come WorkerOrders: stop, drain, a lost peer, a
fence. The link's end means that the shim is gone.
"""

import os
import socket

from manta.v1 import node_pb2

MAX_PACKET = 256 << 10


def from_environment():
    """None where no shim has started this process. Removes the variable: children are not to see it."""
    number = os.environ.pop("MANTA_SHIM_FD", "")
    if not number.isdigit():
        return None
    try:
        link = socket.socket(fileno=int(number))
    except OSError:
        return None
    if link.type != socket.SOCK_SEQPACKET:
        link.detach()
        return None
    link.setblocking(False)
    link.set_inheritable(False)
    return ShimLink(link)


class ShimLink:

    def __init__(self, link):
        self._socket = link

    def watch(self, loop, on_order, on_gone):
        """on_order(WorkerOrder), on_gone(): on the loop's thread."""

        def read():
            try:
                packet = self._socket.recv(MAX_PACKET)
            except (BlockingIOError, InterruptedError, ConnectionResetError):
                return
            except OSError:
                packet = b""
            if not packet:
                loop.remove_reader(self._socket.fileno())
                on_gone()
                return
            order = node_pb2.WorkerOrder()
            try:
                order.ParseFromString(packet)
            except Exception:
                return  # of a later version
            on_order(order)

        loop.add_reader(self._socket.fileno(), read)

    def send(self, report):
        """Any thread. Never blocks: a report that the shim has no room for is dropped, as the next one says more."""
        try:
            self._socket.send(report.SerializeToString(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        except OSError:
            return False

    def progress(self, step):
        self.send(node_pb2.WorkerReport(progress=node_pb2.WorkerProgress(step=step)))

    def note(self, text):
        self.send(node_pb2.WorkerReport(note=node_pb2.WorkerNote(text=text[:1000])))

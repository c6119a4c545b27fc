"""Lanes: a bounded queue and threads of its own for the calls that name it."""

import queue
import threading


class Lane:

    def __init__(self, name, threads, capacity):
        self.name = name
        self._queue = queue.Queue(capacity)
        self._lock = threading.Lock()
        self.running = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}"[:15], daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self):
        return self._queue.qsize()

    def submit(self, task):
        """False where the queue is full."""
        try:
            self._queue.put_nowait(task)
            return True
        except queue.Full:
            return False

    def _work(self):
        while True:
            task = self._queue.get()
            with self._lock:
                self.running += 1
            try:
                task()
            finally:
                with self._lock:
                    self.running -= 1

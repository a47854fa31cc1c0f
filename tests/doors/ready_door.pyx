"""Shows the ready queue to the tests."""

from eploop.handles cimport Handle, ThreadsafeHandle, new_handle
from eploop.ready cimport ReadyQueue


cdef class Ready:
    cdef ReadyQueue queue

    def __cinit__(self):
        self.queue = ReadyQueue()

    def push(self, tag):
        self.queue.push(new_handle(tag, (), None, None))

    def post(self, tag):
        """As another thread would; False once closed."""
        cdef ThreadsafeHandle handle = ThreadsafeHandle.__new__(ThreadsafeHandle)
        handle._callback = tag
        return self.queue.post(handle)

    def collect(self):
        self.queue.collect()

    def popleft(self):
        return (<Handle>self.queue.popleft())._callback

    def close(self):
        self.queue.close()

    def has_posted(self):
        return self.queue.has_posted()

    def __len__(self):
        return self.queue.size

    def fits(self):
        """The ring has as many places as it believes."""
        return len(self.queue._ring) == self.queue._mask + 1

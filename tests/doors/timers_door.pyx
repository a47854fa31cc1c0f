"""Shows the timer heap to the tests."""

from eploop.timers cimport TimerHandle, TimerHeap, new_timer


class NoLoop:
    def call_exception_handler(self, context):
        raise AssertionError(context)


cdef class Heap:
    cdef TimerHeap heap

    def __cinit__(self):
        self.heap = TimerHeap()

    def push(self, double when, callback=print, args=()):
        timer = self.made(when, callback, args)
        self.heap.push(timer)
        return timer

    def made(self, double when, callback=print, args=()):
        """A timer that is in no heap yet."""
        return new_timer(when, callback, args, NoLoop(), None)

    def push_made(self, TimerHandle timer):
        self.heap.push(timer)

    def pop(self):
        return self.heap.pop()

    def first(self):
        return self.heap.first()

    def clear(self):
        self.heap.clear()

    def __len__(self):
        return self.heap.size

    @property
    def capacity(self):
        return self.heap._capacity

    @property
    def cancelled(self):
        return self.heap.cancelled

    def is_valid(self):
        """Each node is no earlier than its parent and knows its place."""
        cdef Py_ssize_t i, parent
        for i in range(self.heap.size):
            if (<TimerHandle>self.heap._timers[i])._index != i:
                return False
            parent = (i - 1) // 4
            if i and ((self.heap._keys[parent].when, self.heap._keys[parent].sequence)
                      > (self.heap._keys[i].when, self.heap._keys[i].sequence)):
                return False
        return True

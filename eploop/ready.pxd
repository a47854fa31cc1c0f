# The ready queue: a ring of runnables, and a stack on which other threads post.

from cpython.object cimport PyObject

from eploop.handles cimport Runnable, ThreadsafeHandle

cdef extern from *:
    """
    /* An empty slot holds None, in whose place the item comes. */
    static inline void eploop_put(PyObject *list, Py_ssize_t i, PyObject *item) {
        ((PyListObject *)list)->ob_item[i] = Py_NewRef(item);
        Py_DECREF(Py_None);
    }
    /* The list's reference becomes the caller's. */
    static inline PyObject *eploop_take(PyObject *list, Py_ssize_t i) {
        PyObject *item = ((PyListObject *)list)->ob_item[i];
        ((PyListObject *)list)->ob_item[i] = Py_NewRef(Py_None);
        return item;
    }
    """
    void put "eploop_put"(list l, Py_ssize_t i, object item)
    Runnable take "eploop_take"(list l, Py_ssize_t i)


cdef class ReadyQueue:
    cdef:
        # The ring. A list, so that the garbage collector sees what stands in it; and whoever asks
        # the collector for all objects sees the list, so the slots that hold nothing hold None.
        list _ring
        Py_ssize_t _mask         # capacity - 1; the capacity is a power of two
        Py_ssize_t _head
        Py_ssize_t size
        # Posted from other threads, newest first; CLOSED once closed.
        void *_posted
    cdef bint post(self, ThreadsafeHandle handle) noexcept    # false: closed
    cdef bint has_posted(self) noexcept
    cdef int collect(self) except -1    # what was posted joins the ring
    cdef int close(self) except -1
    cdef void _drop_posted(self) noexcept
    cdef int _append_posted(self, PyObject *newest) except -1
    cdef int _grow(self) except -1

    cdef inline int push(self, Runnable job) except -1:
        # What other threads posted earlier stays ahead of what is pushed now.
        if self._posted is not NULL:
            self.collect()
        return self._append(job)

    cdef inline int _append(self, Runnable job) except -1:
        if self.size > self._mask:
            self._grow()
        put(self._ring, (self._head + self.size) & self._mask, job)
        self.size += 1
        return 0

    cdef inline Runnable popleft(self):
        """Only if size > 0."""
        cdef Runnable job = take(self._ring, self._head)
        self._head = (self._head + 1) & self._mask
        self.size -= 1
        return job

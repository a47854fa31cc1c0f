# Where the next bytes go: a stream asks its receiver for space, fills it, and says how much came.

from eploop.buffers cimport SharedBuffers


cdef class Receiver:
    cdef:
        object _protocol
        object _context      # in which the protocol is called
    # Where to put bytes. What it gives is good until `filled` or `unused`.
    cdef int space(self, char **start, Py_ssize_t *room) except -1
    cdef int filled(self, Py_ssize_t n) except -1    # n > 0
    cdef int unused(self) except -1                  # nothing came
    cdef bint eof(self) except -1                    # true: keep the sending half open
    cdef str failed(self)                            # which call of the protocol raised


cdef Receiver receiver_for(object protocol, object context, SharedBuffers shared)

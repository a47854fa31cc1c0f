# The one door from -errno to OSError.

cdef object os_error(long rc, str call)
cdef int raise_errno(long rc, str call) except -1

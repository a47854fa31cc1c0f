"""The one door from -errno to OSError."""

import os


cdef object os_error(long rc, str call):
    """The exception for `rc` = -errno; Python picks the subclass, a note names the system call."""
    error = OSError(-rc, os.strerror(-rc))
    error.add_note(f"eploop: from {call}()")
    return error


def os_error_saying(code, message):
    """An OSError with asyncio's own words, where programs may look at them."""
    return OSError(code, message)


cdef int raise_errno(long rc, str call) except -1:
    raise os_error(rc, call)

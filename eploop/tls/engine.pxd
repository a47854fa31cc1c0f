# TLS without I/O: ciphertext in, plaintext out, and the other way round.

from eploop.tls.libssl cimport Ends, LibSSL, Output


cdef class SharedTLS:
    """What the TLS connections of one loop share. Holds nothing across a callback."""
    cdef:
        LibSSL *lib                 # NULL: through the ssl module
        bint _looked
        str _path
        Output output
        char *_cipher
        object _incoming            # the BIOs that an SSLObject is made with, before it gets ours
        object _outgoing
    cdef char *cipher(self) except NULL     # READ_BYTES, for what a connection receives
    cdef Engine engine(self, object context, bint server_side, object server_hostname)
    cdef LibSSL *direct(self, object context) except? NULL


cdef class Engine:
    """One connection's TLS. Call `output` after each call that is not a question."""
    cdef:
        readonly object ssl_object
        readonly bint ended         # the peer said that it sends no more
        object failure              # what ended the connection, once all before it was read
    cdef int feed(self, const char *start, Py_ssize_t n) except -1    # good until `keep`
    cdef int keep(self) except -1           # copy what is left of what was fed
    cdef bint has_more(self) except -1      # something was fed, or deciphered, and not read
    cdef Py_ssize_t read(self, char *target, Py_ssize_t room) except -1    # 0: no more for now
    cdef bint write(self, const char *start, Py_ssize_t n) except -1    # false: same again later
    cdef Py_ssize_t output(self, const char **start) except -1    # to send, good until the next
    cdef bint handshake(self) except -1     # true: done
    cdef bint shutdown(self) except -1      # true: both ends said so

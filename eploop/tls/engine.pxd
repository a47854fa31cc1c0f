# TLS without I/O: ciphertext in, plaintext out, and the other way round.

from cpython.object cimport PyObject

from eploop.tls.libssl cimport Ends, LibSSL, Output


cdef enum:
    WARM_PLACES = 128


cdef class SharedTLS:
    """What the TLS connections of one loop share. Holds nothing across a callback."""
    cdef:
        LibSSL *lib                 # NULL: through the ssl module
        bint _looked
        str _path
        Output output
        char *_cipher
        # Who holds OpenSSL's buffers (34 KB): those that were active last. By age, in a ring.
        PyObject *_warm[WARM_PLACES]    # borrowed: an engine clears its place
        Py_ssize_t _next_warm
        object _incoming            # the BIOs that an SSLObject is made with, before it gets ours
        object _outgoing
    cdef char *cipher(self) except NULL     # READ_BYTES, for what a connection receives
    cdef int warm_up(self, DirectEngine engine) except -1
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


# The SSLObject stays until the end: freed early, its SSL* would be called after its death.
cdef class DirectEngine(Engine):
    """SSL_read and SSL_write, straight between the loop's buffers."""
    cdef:
        SharedTLS _shared
        LibSSL *_lib
        void *_ssl
        void *_bio
        Ends _ends
        size_t _base            # where our part of the shared output begins
        char *_kept             # what is left of what was fed, or NULL
        Py_ssize_t _kept_room
        Py_ssize_t _place       # among the warm ones; -1: it is cold
    cdef int open(self, SharedTLS shared, LibSSL *lib, void *own) except -1
    cdef int cool_down(self) except -1
    cdef int _keep_with(self, Py_ssize_t more) except -1
    cdef int _begin(self) except -1
    cdef void _clean(self) noexcept
    cdef int _stopped(self, int result) except -1
    cdef object _explain(self)

"""TLS without I/O: ciphertext in, plaintext out, and the other way round.

Handshake, shutdown, queries and exceptions are those of a genuine ssl.SSLObject. The data path
calls OpenSSL directly, on the loop's shared buffers; or, where that cannot be (see libssl) or the
context wants to see each message in Python, goes through the SSLObject and two MemoryBIOs.

Source: SSL_read(3), SSL_write(3), SSL_get_error(3); CPython Modules/_ssl.c, Lib/ssl.py.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from libc.limits cimport INT_MAX
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from eploop.buffers cimport READ_BYTES
from eploop.tls.libssl cimport (
    SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN, LibSSL, new_bio, ssl_pointer, usable_libssl,
)

cdef enum:
    SSL_CTRL_CLEAR_MODE = 78
    SSL_MODE_RELEASE_BUFFERS = 0x10

try:
    import ssl
except ImportError:
    ssl = None


@cython.final
cdef class SharedTLS:

    def __cinit__(self, str path):
        """`path`: "direct" or "memorybio"."""
        self._path = path

    def __dealloc__(self):
        free(self.output.data)
        PyMem_Free(self._cipher)

    cdef char *cipher(self) except NULL:
        if self._cipher is NULL:
            self._cipher = <char *>PyMem_Malloc(READ_BYTES)
            if self._cipher is NULL:
                raise MemoryError
        return self._cipher

    cdef int warm_up(self, DirectEngine engine) except -1:
        """`engine` is going to have buffers; so the one that got them longest ago gives up its.

        Freed after each record, as _ssl asks for (SSL_MODE_RELEASE_BUFFERS), they are 8 % of what
        a small echo costs.
        """
        cdef PyObject *oldest = self._warm[self._next_warm]
        if oldest is not NULL:
            (<DirectEngine>oldest).cool_down()
        self._warm[self._next_warm] = <PyObject *>engine
        engine._place = self._next_warm
        self._next_warm = (self._next_warm + 1) % WARM_PLACES
        return 0

    cdef LibSSL *direct(self, object context) except? NULL:
        """How to call OpenSSL directly; NULL if that is not to be."""
        if not self._looked:
            if self._path == "direct":
                self.lib = usable_libssl()
                self._incoming = ssl.MemoryBIO()
                self._outgoing = ssl.MemoryBIO()
            self._looked = True
        # Its exceptions would wait in the SSLObject, which looks only after its own calls.
        if getattr(context, "_msg_callback", None) is not None:
            return NULL
        return self.lib

    cdef Engine engine(self, object context, bint server_side, object server_hostname):
        """An engine at the start of its handshake.

        Raises:
            ValueError, ssl.SSLError: What `SSLContext.wrap_bio` raises.
        """
        cdef:
            LibSSL *lib = self.direct(context)
            DirectEngine direct
            void *own
        if lib is not NULL:
            ssl_object = context.wrap_bio(self._incoming, self._outgoing,
                                          server_side=server_side,
                                          server_hostname=server_hostname)
            own = ssl_pointer(lib, ssl_object, context)
            if own is not NULL:
                direct = DirectEngine.__new__(DirectEngine)
                direct.ssl_object = ssl_object
                direct.open(self, lib, own)
                return direct
        return MemoryEngine(context, server_side, server_hostname)


cdef class Engine:

    cdef int feed(self, const char *start, Py_ssize_t n) except -1:
        return 0

    cdef int keep(self) except -1:
        return 0

    cdef bint has_more(self) except -1:
        return False

    cdef Py_ssize_t read(self, char *target, Py_ssize_t room) except -1:
        return 0

    cdef bint write(self, const char *start, Py_ssize_t n) except -1:
        return False

    cdef Py_ssize_t output(self, const char **start) except -1:
        return 0

    cdef bint handshake(self) except -1:
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    cdef bint shutdown(self) except -1:
        try:
            self.ssl_object.unwrap()
        except ssl.SSLWantReadError:
            return False
        return True


@cython.final
@cython.no_gc_clear
cdef class DirectEngine(Engine):
    def __cinit__(self):
        self._place = -1

    def __dealloc__(self):
        if self._place >= 0:
            self._shared._warm[self._place] = NULL
        if self._bio is not NULL:
            # SAFETY: the SSL, which a program may have kept, shares the BIO with us and finds
            # from now on that nothing comes and nothing can be sent.
            self._lib.BIO_set_data(self._bio, NULL)
            self._lib.BIO_free(self._bio)
        PyMem_Free(self._kept)

    cdef int open(self, SharedTLS shared, LibSSL *lib, void *own) except -1:
        self._shared = shared
        self._lib = lib
        self._ssl = own
        self._ends.output = &shared.output
        self._bio = new_bio(lib, &self._ends)
        lib.BIO_up_ref(self._bio)
        lib.SSL_set_bio(own, self._bio, self._bio)    # which takes one reference
        lib.SSL_ctrl(own, SSL_CTRL_CLEAR_MODE, SSL_MODE_RELEASE_BUFFERS, NULL)
        return 0

    cdef int _begin(self) except -1:
        """Before each call of OpenSSL."""
        self._base = self._shared.output.used
        self._clean()
        return 0 if self._place >= 0 else self._shared.warm_up(self)

    cdef void _clean(self) noexcept:
        # What somebody else left in this thread's queue would be taken for ours.
        if self._lib.ERR_peek_error():
            self._lib.ERR_clear_error()

    cdef int cool_down(self) except -1:
        self._place = -1
        # What is in use it does not free.
        self._lib.SSL_free_buffers(self._ssl)
        return 0

    cdef int feed(self, const char *start, Py_ssize_t n) except -1:
        if self._ends.left == 0:
            self._ends.start = start
            self._ends.left = <size_t>n
            return 0
        self._keep_with(n)
        memcpy(self._kept + self._ends.left, start, <size_t>n)
        self._ends.left += <size_t>n
        return 0

    cdef int keep(self) except -1:
        if self._ends.left:
            return self._keep_with(0)
        if self._kept is not NULL:
            PyMem_Free(self._kept)
            self._kept = NULL
            self._kept_room = 0
        return 0

    cdef int _keep_with(self, Py_ssize_t more) except -1:
        """Have what is left in memory of our own, at its start, with room for `more`."""
        cdef:
            Py_ssize_t needed = <Py_ssize_t>self._ends.left + more
            bint ours = (self._kept is not NULL and self._ends.start >= self._kept
                         and self._ends.start < self._kept + self._kept_room)
            char *wider
        if ours and more == 0:
            return 0
        if ours:
            memmove(self._kept, self._ends.start, self._ends.left)
            self._ends.start = self._kept
        if needed > self._kept_room:
            wider = <char *>PyMem_Realloc(self._kept, needed)
            if wider is NULL:
                raise MemoryError
            self._kept = wider
            self._kept_room = needed
        if not ours:
            memcpy(self._kept, self._ends.start, self._ends.left)
        self._ends.start = self._kept
        return 0

    cdef bint has_more(self) except -1:
        return self._ends.left > 0 or self._lib.SSL_pending(self._ssl) > 0

    cdef Py_ssize_t read(self, char *target, Py_ssize_t room) except -1:
        cdef:
            Py_ssize_t total = 0
            int n
        self._begin()
        while total < room and not self.ended and self.failure is None:
            n = self._lib.SSL_read(self._ssl, target + total, <int>min(room - total, INT_MAX))
            if n <= 0:
                self._stopped(n)
                break
            total += n
            if self._ends.left == 0 and self._lib.SSL_pending(self._ssl) == 0:
                break    # asking again would only say so
            self._clean()
        return total

    cdef int _stopped(self, int result) except -1:
        """Find out why SSL_read or SSL_write did nothing."""
        cdef int error = self._lib.SSL_get_error(self._ssl, result)
        if error == SSL_ERROR_ZERO_RETURN:
            self.ended = True
        elif error != SSL_ERROR_WANT_READ:
            self.failure = self._explain()
        return 0

    cdef object _explain(self):
        """The ssl module's exception for the error that lies in OpenSSL's queue.

        A broken SSL answers -1 to whatever is asked, and leaves the queue as it is.
        """
        try:
            self.ssl_object.read(1)
        except ssl.SSLError as exc:
            if not isinstance(exc, (ssl.SSLWantReadError, ssl.SSLWantWriteError)):
                return exc.with_traceback(None)
        return ssl.SSLError(ssl.SSL_ERROR_SSL, "unknown failure in OpenSSL")

    cdef bint write(self, const char *start, Py_ssize_t n) except -1:
        cdef int sent
        self._begin()
        sent = self._lib.SSL_write(self._ssl, start, <int>n)
        if sent > 0:
            return True    # all of it: partial writes are not enabled
        self._stopped(sent)
        if self.failure is not None:
            raise self.failure
        return False

    cdef Py_ssize_t output(self, const char **start) except -1:
        cdef Py_ssize_t n = <Py_ssize_t>(self._shared.output.used - self._base)
        start[0] = self._shared.output.data + self._base
        self._shared.output.used = self._base
        return n

    cdef bint handshake(self) except -1:
        # A callback of the context may write to other connections meanwhile: theirs comes behind
        # ours in the shared output, and is gone when we go on.
        self._begin()
        return Engine.handshake(self)

    cdef bint shutdown(self) except -1:
        self._begin()
        return Engine.shutdown(self)


@cython.final
cdef class MemoryEngine(Engine):
    """Through the ssl module: whatever Python, OpenSSL or context it is."""
    cdef:
        object _incoming
        object _outgoing
        object _inner       # of the SSLObject, whose own methods are only Python around it
        bytes _sending      # what `output` gave

    def __cinit__(self, context, server_side, server_hostname):
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._incoming, self._outgoing,
                                           server_side=server_side,
                                           server_hostname=server_hostname)
        self._inner = self.ssl_object
        if type(self.ssl_object) is ssl.SSLObject:
            self._inner = self.ssl_object._sslobj

    cdef int feed(self, const char *start, Py_ssize_t n) except -1:
        self._incoming.write(PyMemoryView_FromMemory(<char *>start, n, PyBUF_READ))
        return 0

    cdef bint has_more(self) except -1:
        return self._incoming.pending > 0 or self._inner.pending() > 0

    cdef Py_ssize_t read(self, char *target, Py_ssize_t room) except -1:
        cdef Py_ssize_t n, total = 0
        while total < room and not self.ended and self.failure is None:
            view = PyMemoryView_FromMemory(target + total, room - total, PyBUF_WRITE)
            try:
                n = self._inner.read(room - total, view)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:    # so it is called once we ended it as well
                self.ended = True
                break
            except Exception as exc:    # also of a message callback
                self.failure = exc
                break
            if n == 0:
                self.ended = True
                break
            total += n
            # Without this, an exception would end each batch.
            if not self.has_more():
                break
        return total

    cdef bint write(self, const char *start, Py_ssize_t n) except -1:
        try:
            self._inner.write(PyMemoryView_FromMemory(<char *>start, n, PyBUF_READ))
        except ssl.SSLWantReadError:
            return False
        return True

    cdef Py_ssize_t output(self, const char **start) except -1:
        self._sending = self._outgoing.read() if self._outgoing.pending else b""
        start[0] = PyBytes_AS_STRING(self._sending)
        return PyBytes_GET_SIZE(self._sending)

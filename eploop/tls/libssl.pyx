"""The OpenSSL that Python's ssl module has loaded, reached without linking to one.

`_ssl` is an extension module that links to libssl, so its handle finds the very functions it uses.
The SSL* of an ssl.SSLObject is found by looking, not by trusting a layout: of the words of the
C-level object exactly one is the address of its context, the word before it is the SSL*, and
OpenSSL must say that the SSL's own SSL_CTX is one that the context object holds. All this is tried
once, on objects made for the purpose, up to a ClientHello; at any doubt the answer is no, and TLS
goes through the ssl module instead.

Source: CPython Modules/_ssl.c (PySSLSocket, PySSLContext; 3.11 to 3.15); ssl(3), bio(3),
BIO_meth_new(3); dlopen(3).
"""

from cpython.object cimport PyObject
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

try:
    import _ssl
    import ssl
except ImportError:    # a Python built without it
    ssl = None

cdef extern from "dlfcn.h" nogil:
    enum:
        RTLD_NOW
        RTLD_NOLOAD
    void *dlopen(const char *path, int flags)
    void *dlsym(void *handle, const char *name)

cdef enum:
    BIO_TYPE_SOURCE_SINK = 0x0400
    BIO_FLAGS_READ = 0x01
    BIO_FLAGS_RETRY = 0x0F          # with all its reasons
    BIO_FLAGS_SHOULD_RETRY = 0x08
    BIO_CTRL_FLUSH = 11
    OUTPUT_BYTES = 68 * 1024        # four full records, as 64 KiB make
    HANDSHAKE_RECORD = 22

cdef LibSSL found
cdef LibSSL *chosen = NULL
cdef bint looked = False
why_not = None


# ---- the BIO: OpenSSL reads what the loop received and appends what the loop is to send

cdef int bio_create(void *bio) noexcept nogil:
    found.BIO_set_init(bio, 1)
    return 1


cdef int bio_read(void *bio, char *target, int room) noexcept nogil:
    cdef:
        Ends *ends = <Ends *>found.BIO_get_data(bio)
        size_t n
    found.BIO_clear_flags(bio, BIO_FLAGS_RETRY)
    if ends is NULL or ends.left == 0:
        found.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    n = min(ends.left, <size_t>room)
    memcpy(target, ends.start, n)
    ends.start += n
    ends.left -= n
    return <int>n


cdef int bio_write(void *bio, const char *data, int n) noexcept nogil:
    cdef:
        Ends *ends = <Ends *>found.BIO_get_data(bio)
        Output *output
        size_t capacity
        void *wider
    found.BIO_clear_flags(bio, BIO_FLAGS_RETRY)
    if ends is NULL or n <= 0:
        return -1    # the connection is gone, its SSLObject was kept
    output = ends.output
    if output.used + <size_t>n > output.capacity:
        capacity = max(<size_t>OUTPUT_BYTES, 2 * output.capacity, output.used + <size_t>n)
        wider = realloc(output.data, capacity)
        if wider is NULL:
            return -1
        output.data = <char *>wider
        output.capacity = capacity
    memcpy(output.data + output.used, data, <size_t>n)
    output.used += <size_t>n
    return n


cdef long bio_control(void *bio, int command, long number, void *data) noexcept nogil:
    return command == BIO_CTRL_FLUSH


cdef void *new_bio(LibSSL *lib, Ends *ends) except NULL:
    """A BIO between `ends`, which must be unset (BIO_set_data) before they go away."""
    cdef void *bio = lib.BIO_new(lib.method)
    if bio is NULL:
        raise MemoryError
    lib.BIO_set_data(bio, ends)
    return bio


# ---- finding it

cdef str load(LibSSL *lib):
    """Fill the table; what is missing, or None."""
    cdef:
        void *handle
        dict places = {
            b"SSL_read": <size_t>&lib.SSL_read,
            b"SSL_write": <size_t>&lib.SSL_write,
            b"SSL_pending": <size_t>&lib.SSL_pending,
            b"SSL_get_error": <size_t>&lib.SSL_get_error,
            b"SSL_get_SSL_CTX": <size_t>&lib.SSL_get_SSL_CTX,
            b"SSL_set_bio": <size_t>&lib.SSL_set_bio,
            b"SSL_ctrl": <size_t>&lib.SSL_ctrl,
            b"SSL_free_buffers": <size_t>&lib.SSL_free_buffers,
            b"ERR_peek_error": <size_t>&lib.ERR_peek_error,
            b"ERR_clear_error": <size_t>&lib.ERR_clear_error,
            b"BIO_new": <size_t>&lib.BIO_new,
            b"BIO_free": <size_t>&lib.BIO_free,
            b"BIO_up_ref": <size_t>&lib.BIO_up_ref,
            b"BIO_set_data": <size_t>&lib.BIO_set_data,
            b"BIO_get_data": <size_t>&lib.BIO_get_data,
            b"BIO_set_init": <size_t>&lib.BIO_set_init,
            b"BIO_set_flags": <size_t>&lib.BIO_set_flags,
            b"BIO_clear_flags": <size_t>&lib.BIO_clear_flags,
            b"BIO_get_new_index": <size_t>&lib.BIO_get_new_index,
            b"BIO_meth_new": <size_t>&lib.BIO_meth_new,
            b"BIO_meth_set_read": <size_t>&lib.BIO_meth_set_read,
            b"BIO_meth_set_write": <size_t>&lib.BIO_meth_set_write,
            b"BIO_meth_set_ctrl": <size_t>&lib.BIO_meth_set_ctrl,
            b"BIO_meth_set_create": <size_t>&lib.BIO_meth_set_create,
        }
        bytes path
        void *symbol
        size_t place
    if not ssl.OPENSSL_VERSION.startswith("OpenSSL ") or ssl.OPENSSL_VERSION_INFO < (1, 1, 1):
        return f"{ssl.OPENSSL_VERSION} is not known to work"
    # Built into the interpreter it has no file: then the program itself may export OpenSSL.
    file = getattr(_ssl, "__file__", None)
    if file is None:
        handle = dlopen(NULL, RTLD_NOW)
    else:
        path = file.encode("utf-8", "surrogateescape")
        handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD)
    if handle is NULL:
        return "the ssl module's library cannot be opened"
    for name, where in places.items():
        symbol = dlsym(handle, <bytes>name)
        if symbol is NULL:
            return f"{name.decode()} is not exported"
        place = where
        (<void **>place)[0] = symbol
    return None


cdef str make_method(LibSSL *lib):
    lib.method = lib.BIO_meth_new(lib.BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"eploop")
    if lib.method is NULL:
        return "no BIO can be made"
    lib.BIO_meth_set_create(lib.method, <void *>&bio_create)
    lib.BIO_meth_set_read(lib.method, <void *>&bio_read)
    lib.BIO_meth_set_write(lib.method, <void *>&bio_write)
    lib.BIO_meth_set_ctrl(lib.method, <void *>&bio_control)
    return None


cdef list words_of(object thing):
    """The words of a C-level object, as numbers."""
    cdef:
        size_t *words = <size_t *><PyObject *>thing
        Py_ssize_t count = type(thing).__basicsize__ // sizeof(size_t)
        Py_ssize_t i
    return [words[i] for i in range(count)]


cdef str find_word(LibSSL *lib, object ssl_object, object context):
    """Set `ssl_word`; why not, or None."""
    cdef:
        list words = words_of(ssl_object._sslobj)
        size_t address
    if type(ssl_object._sslobj) is not _ssl._SSLSocket:
        return "SSLObject holds something unknown"
    if words.count(id(context)) != 1:
        return "the context is not in its place"
    lib.ssl_word = words.index(id(context)) - 1
    address = words[lib.ssl_word]
    if lib.ssl_word < 1 or address == 0 or address % sizeof(void *):
        return "the SSL is not in its place"
    if <size_t>lib.SSL_get_SSL_CTX(<void *>address) not in words_of(context):
        return "the SSL is another context's"
    return None


cdef str try_out(LibSSL *lib):
    """Find the SSL* and let it say hello through our BIO; why it cannot, or None."""
    cdef:
        Output output
        Ends ends
        void *own
        void *bio
        str reason
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    ssl_object = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())
    reason = find_word(lib, ssl_object, context)
    if reason is not None:
        return reason
    own = ssl_pointer(lib, ssl_object, context)
    if own is NULL:
        return "the SSL cannot be found twice"
    memset(&output, 0, sizeof(output))
    memset(&ends, 0, sizeof(ends))
    ends.output = &output
    bio = new_bio(lib, &ends)
    lib.BIO_up_ref(bio)
    lib.SSL_set_bio(own, bio, bio)
    try:
        ssl_object.do_handshake()
        reason = "a handshake came to an end by itself"
    except ssl.SSLWantReadError:
        if output.used < 5 or output.data[0] != HANDSHAKE_RECORD:
            reason = "no ClientHello came"
    except ssl.SSLError as exc:
        reason = f"a handshake failed: {exc}"
    finally:
        lib.BIO_set_data(bio, NULL)
        lib.BIO_free(bio)
        free(output.data)
    return reason


cdef LibSSL *usable_libssl() except? NULL:
    global chosen, looked, why_not
    if looked:
        return chosen
    why_not = load(&found) or make_method(&found) or try_out(&found)
    if why_not is None:
        chosen = &found
    looked = True
    return chosen


def why_not_direct():
    """Why OpenSSL is not called directly in this process; None if it is."""
    if ssl is None:
        return "this Python has no ssl module"
    usable_libssl()
    return why_not


cdef void *ssl_pointer(LibSSL *lib, object ssl_object, object context) except? NULL:
    """The SSL* of `ssl_object`, which `context` made; NULL at any doubt."""
    cdef:
        object inner = getattr(ssl_object, "_sslobj", None)
        size_t *words = <size_t *><PyObject *>inner
        void *own
    if type(inner) is not _ssl._SSLSocket or words[lib.ssl_word + 1] != <size_t><PyObject *>context:
        return NULL
    own = <void *>words[lib.ssl_word]
    return own

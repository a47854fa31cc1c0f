# The OpenSSL that Python's ssl module has loaded, reached without linking to one.

cdef enum:
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_ZERO_RETURN = 6


cdef struct Output:             # ciphertext on its way out; one of a loop, used like a stack
    char *data
    size_t used
    size_t capacity


cdef struct Ends:               # of one connection's BIO
    const char *start           # ciphertext that came and was not read yet
    size_t left
    Output *output


cdef struct LibSSL:
    int (*SSL_read)(void *ssl, void *target, int room) noexcept nogil
    int (*SSL_write)(void *ssl, const void *data, int n) noexcept nogil
    int (*SSL_pending)(const void *ssl) noexcept nogil
    int (*SSL_get_error)(const void *ssl, int result) noexcept nogil
    void *(*SSL_get_SSL_CTX)(const void *ssl) noexcept nogil
    void (*SSL_set_bio)(void *ssl, void *reading, void *writing) noexcept nogil
    long (*SSL_ctrl)(void *ssl, int command, long number, void *data) noexcept nogil
    int (*SSL_free_buffers)(void *ssl) noexcept nogil
    unsigned long (*ERR_peek_error)() noexcept nogil
    void (*ERR_clear_error)() noexcept nogil
    void *(*BIO_new)(const void *method) noexcept nogil
    int (*BIO_free)(void *bio) noexcept nogil
    int (*BIO_up_ref)(void *bio) noexcept nogil
    void (*BIO_set_data)(void *bio, void *data) noexcept nogil
    void *(*BIO_get_data)(void *bio) noexcept nogil
    void (*BIO_set_init)(void *bio, int ready) noexcept nogil
    void (*BIO_set_flags)(void *bio, int flags) noexcept nogil
    void (*BIO_clear_flags)(void *bio, int flags) noexcept nogil
    int (*BIO_get_new_index)() noexcept nogil
    void *(*BIO_meth_new)(int kind, const char *name) noexcept nogil
    int (*BIO_meth_set_read)(void *method, void *function) noexcept nogil
    int (*BIO_meth_set_write)(void *method, void *function) noexcept nogil
    int (*BIO_meth_set_ctrl)(void *method, void *function) noexcept nogil
    int (*BIO_meth_set_create)(void *method, void *function) noexcept nogil
    void *method                # of our BIOs
    Py_ssize_t ssl_word         # at which word of a _ssl._SSLSocket its SSL* lies


cdef LibSSL *usable_libssl() except? NULL    # NULL: the ssl module has to do
cdef void *ssl_pointer(LibSSL *lib, object ssl_object, object context) except? NULL
cdef void *new_bio(LibSSL *lib, Ends *ends) except NULL

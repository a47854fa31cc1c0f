# The lower side of a TLS connection: what the connection below takes for its protocol.

from eploop.receivers cimport Receiver
from eploop.tls.connection cimport TLSConnection


cdef class TLSProtocol(Receiver):
    """The lower side: receives ciphertext, and is the protocol of the connection below."""
    cdef:
        TLSConnection _tls
        char *_own          # where a connection that is no plain stream puts ciphertext
    cdef char *_own_space(self) except NULL

# Socket addresses as the kernel writes them, and as Python shows them.

from eploop.syscalls.sock cimport sockaddr, sockaddr_storage, socklen_t

cdef enum:
    ADDRESS_BYTES = 28      # sockaddr_in6; longer ones (unix) are not kept raw


cdef struct RawAddress:
    unsigned char size      # 0: none
    char data[ADDRESS_BYTES]


cdef void keep(RawAddress *raw, const sockaddr_storage *address, socklen_t size) noexcept
cdef object to_python(const sockaddr *address, socklen_t size)
cdef object raw_to_python(const RawAddress *raw)
# The size, or 0: whoever asks leaves it to the socket module. `raw` is then undefined.
cdef socklen_t from_python(int family, object address, sockaddr_storage *raw) except? 0

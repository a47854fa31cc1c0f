"""Socket addresses as the kernel writes them, and as Python shows them.

Source: CPython Modules/socketmodule.c, makesockaddr; ip(7), ipv6(7), unix(7).
"""

import os
import socket

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from eploop.syscalls.sock cimport (
    AF_INET, AF_INET6, AF_UNIX, ntohl, ntohs, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage, socklen_t,
)

cdef enum:
    UNIX_HEADER_BYTES = 2   # sun_family


cdef void keep(RawAddress *raw, const sockaddr_storage *address, socklen_t size) noexcept:
    if size <= ADDRESS_BYTES:
        raw.size = <unsigned char>size
        memcpy(raw.data, address, size)
    else:
        raw.size = 0


cdef object raw_to_python(const RawAddress *raw):
    """The address, or None if none was kept."""
    if raw.size == 0:
        return None
    return to_python(<const sockaddr *>raw.data, raw.size)


cdef object to_python(const sockaddr *address, socklen_t size):
    """The address in the form of the socket module; None for a family it has no form for."""
    cdef:
        const sockaddr_in *v4 = <const sockaddr_in *>address
        const sockaddr_in6 *v6 = <const sockaddr_in6 *>address
    if size < UNIX_HEADER_BYTES:
        return None
    if address.sa_family == AF_INET:
        packed = PyBytes_FromStringAndSize(<const char *>&v4.sin_addr, 4)
        return socket.inet_ntop(AF_INET, packed), ntohs(v4.sin_port)
    if address.sa_family == AF_INET6:
        packed = PyBytes_FromStringAndSize(<const char *>&v6.sin6_addr, 16)
        host = socket.inet_ntop(AF_INET6, packed)
        return host, ntohs(v6.sin6_port), ntohl(v6.sin6_flowinfo), v6.sin6_scope_id
    if address.sa_family == AF_UNIX:
        return _unix_path(<const char *>address + UNIX_HEADER_BYTES, size - UNIX_HEADER_BYTES)
    return None


cdef object _unix_path(const char *path, Py_ssize_t n):
    raw = PyBytes_FromStringAndSize(path, n)
    if raw[:1] == b"\0":
        return raw                              # abstract: bytes, as the socket module has it
    return os.fsdecode(raw.split(b"\0", 1)[0])  # "" when unnamed

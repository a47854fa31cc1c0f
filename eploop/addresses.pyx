"""Socket addresses as the kernel writes them, and as Python shows them.

Source: CPython Modules/socketmodule.c, makesockaddr and getsockaddrarg; ip(7), ipv6(7), unix(7).
"""

import os
import socket

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy, memset, strlen

from eploop.syscalls.sock cimport (
    AF_INET, AF_INET6, AF_UNIX, htonl, htons, inet_pton, ntohl, ntohs, sockaddr, sockaddr_in,
    sockaddr_in6, sockaddr_storage, socklen_t,
)

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

cdef enum:
    UNIX_HEADER_BYTES = 2   # sun_family
    UNIX_PATH_BYTES = 108   # sun_path

cdef uint32_t MAX_PORT = 0xFFFF
cdef uint32_t MAX_FLOW = 0xFFFFF
cdef uint32_t MAX_SCOPE = 0xFFFFFFFF


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


cdef socklen_t from_python(int family, object address, sockaddr_storage *raw) except? 0:
    """Write `address`, in the form of the socket module, as the kernel wants it.

    Understood are numeric hosts and file names, of plain immutable types: the same object always
    means the same address. The rest is the socket module's, which can look a name up and has an
    exception for everything that is wrong.
    """
    memset(raw, 0, sizeof(raw[0]))
    raw.ss_family = <uint16_t>family
    if family == AF_INET:
        return _from_v4(address, <sockaddr_in *>raw)
    if family == AF_INET6:
        return _from_v6(address, <sockaddr_in6 *>raw)
    if family == AF_UNIX:
        return _from_path(address, <char *>raw)
    return 0


cdef socklen_t _from_v4(object address, sockaddr_in *raw) except? 0:
    cdef uint32_t port = 0
    if type(address) is not tuple or len(<tuple>address) != 2:
        return 0
    if not _host(AF_INET, address[0], &raw.sin_addr) or not _number(address[1], MAX_PORT, &port):
        return 0
    raw.sin_port = htons(<uint16_t>port)
    return sizeof(sockaddr_in)


cdef socklen_t _from_v6(object address, sockaddr_in6 *raw) except? 0:
    cdef:
        Py_ssize_t parts
        uint32_t port = 0
        uint32_t flow = 0
        uint32_t scope = 0
    if type(address) is not tuple or not 2 <= len(<tuple>address) <= 4:
        return 0
    parts = len(<tuple>address)
    if not _host(AF_INET6, address[0], &raw.sin6_addr) or not _number(address[1], MAX_PORT, &port):
        return 0
    if parts > 2 and not _number(address[2], MAX_FLOW, &flow):
        return 0
    if parts > 3 and not _number(address[3], MAX_SCOPE, &scope):
        return 0
    raw.sin6_port = htons(<uint16_t>port)
    raw.sin6_flowinfo = htonl(flow)
    raw.sin6_scope_id = scope
    return sizeof(sockaddr_in6)


cdef bint _host(int family, object host, void *packed) except -1:
    """False unless `host` is a numeric address of the family, without a scope."""
    cdef:
        const char *text
        Py_ssize_t n = 0
    if type(host) is not str or not PyUnicode_IS_ASCII(host):
        return False
    text = PyUnicode_AsUTF8AndSize(host, &n)
    return strlen(text) == <size_t>n and inet_pton(family, text, packed) == 1


cdef bint _number(object value, uint32_t highest, uint32_t *target) except -1:
    if type(value) is not int or not 0 <= value <= highest:
        return False
    target[0] = value
    return True


cdef socklen_t _from_path(object address, char *raw) except? 0:
    """unix(7): a name in the abstract space has no end but its size; a path ends with a zero."""
    cdef:
        bytes path
        Py_ssize_t n
        bint abstract
    if type(address) is str:
        path = os.fsencode(address)
    elif type(address) is bytes:
        path = address
    else:
        return 0
    n = PyBytes_GET_SIZE(path)
    abstract = n > 0 and PyBytes_AS_STRING(path)[0] == 0
    if n == 0 or n > UNIX_PATH_BYTES or (not abstract and (n == UNIX_PATH_BYTES or 0 in path)):
        return 0
    memcpy(raw + UNIX_HEADER_BYTES, PyBytes_AS_STRING(path), n)
    return <socklen_t>(UNIX_HEADER_BYTES + n + (0 if abstract else 1))

"""getaddrinfo and getnameinfo: numeric names are answered at once, all others by a thread.

Source: getaddrinfo(3), getnameinfo(3).
"""

import functools
import socket

STOCK_GETADDRINFO = socket.getaddrinfo
PROTOCOLS = {socket.SOCK_STREAM: socket.IPPROTO_TCP, socket.SOCK_DGRAM: socket.IPPROTO_UDP}


@functools.lru_cache(maxsize=1024)
def ipv4_answer(host, port, family, kind, protocol):
    """What socket.getaddrinfo() says of an IPv4 address; None where only the library knows."""
    expected = PROTOCOLS.get(kind)
    if family not in (socket.AF_UNSPEC, socket.AF_INET) or expected is None \
            or protocol not in (0, expected) or not 0 <= port <= 0xFFFF:
        return None
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return None
    return socket.AF_INET, socket.SocketKind(kind), int(expected), "", (host, port)


def quick_answer(host, port, family, kind, protocol, flags):
    """The one entry of getaddrinfo()'s answer for an IPv4 address, or None: ask the library.

    socket.getaddrinfo is looked up at each call, because programs and their tests replace it.
    """
    if flags or type(host) is not str or type(port) is not int \
            or socket.getaddrinfo is not STOCK_GETADDRINFO:
        return None
    return ipv4_answer(host, port, family, kind, protocol)


def is_literal(host):
    """True if `host` needs no name server: an address, or None for the wildcard."""
    if host is None:
        return True
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str) or not host:
        return False
    if host[0].isdigit():
        try:
            socket.inet_pton(socket.AF_INET, host)
        except (OSError, ValueError):
            pass
        else:
            return True
    if ":" not in host:
        return False
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):
        return False
    return True


def is_number(port):
    """True if `port` needs no look-up in the services database."""
    if isinstance(port, bytes):
        return port.isdigit()
    if isinstance(port, str):
        return port.isascii() and port.isdigit()
    return port is None or isinstance(port, int)


async def getaddrinfo(stock_getaddrinfo, host, port, **options):
    """As asyncio's, of which `stock_getaddrinfo` is the bound method."""
    if is_literal(host) and is_number(port):
        return socket.getaddrinfo(host, port, **options)
    return await stock_getaddrinfo(host, port, **options)


async def getnameinfo(stock_getnameinfo, sockaddr, flags):
    """As asyncio's, of which `stock_getnameinfo` is the bound method."""
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    if flags & numeric == numeric:
        return socket.getnameinfo(sockaddr, flags)
    return await stock_getnameinfo(sockaddr, flags)

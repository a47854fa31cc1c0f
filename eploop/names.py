"""getaddrinfo and getnameinfo: numeric names are answered at once, all others by a thread.

Source: getaddrinfo(3), getnameinfo(3).
"""

import socket


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
    """As asyncio's, of which `stock_getaddrinfo` is the bound method.

    socket.getaddrinfo is looked up at each call, because programs and their tests replace it.
    """
    if is_literal(host) and is_number(port):
        return socket.getaddrinfo(host, port, **options)
    return await stock_getaddrinfo(host, port, **options)


async def getnameinfo(stock_getnameinfo, sockaddr, flags):
    """As asyncio's, of which `stock_getnameinfo` is the bound method."""
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    if flags & numeric == numeric:
        return socket.getnameinfo(sockaddr, flags)
    return await stock_getnameinfo(sockaddr, flags)

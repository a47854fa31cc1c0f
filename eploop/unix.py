"""Unix domain stream sockets: create_unix_connection and create_unix_server.

The calls of `posix` are those of `os`, where tools that look for blocking calls replace them, and
know only asyncio's own places by name.

Source: CPython 3.13 asyncio.unix_events._UnixSelectorEventLoop; unix(7).
"""

import contextlib
import errno
import os
import posix
import socket
import stat
from asyncio.log import logger

from eploop.connect import OwnSocketFactory
from eploop.errors import os_error_saying
from eploop.server import Server


def check_tls_options(ssl, handshake_timeout, shutdown_timeout):
    """Raise ValueError if a TLS option was given without TLS."""
    if not ssl:
        if handshake_timeout is not None:
            raise ValueError("ssl_handshake_timeout is only meaningful with ssl")
        if shutdown_timeout is not None:
            raise ValueError("ssl_shutdown_timeout is only meaningful with ssl")


def check_stream_socket(sock):
    """Raise ValueError unless `sock` is a unix stream socket."""
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ValueError(f"A UNIX Domain Stream Socket was expected, got {sock!r}")


async def create_connection(loop, protocol_factory, path, *, ssl, sock, server_hostname,
                            ssl_handshake_timeout, ssl_shutdown_timeout):
    """As asyncio's create_unix_connection."""
    if server_hostname is not None and not isinstance(server_hostname, str):
        raise TypeError(f"server_hostname must be a str, not {type(server_hostname).__name__}")
    if ssl and server_hostname is None:
        raise ValueError("you have to pass server_hostname when using ssl")
    if not ssl and server_hostname is not None:
        raise ValueError("server_hostname is only meaningful with ssl")
    check_tls_options(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if path is not None:
        if sock is not None:
            raise ValueError("path and sock can not be specified at the same time")
        path = os.fspath(path)
        protocol_factory = OwnSocketFactory(protocol_factory)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, path)
        except BaseException:
            sock.close()
            raise
    elif sock is None:
        raise ValueError("no path and sock were specified")
    else:
        check_stream_socket(sock)
        sock.setblocking(False)
    return await loop._create_connection_transport(
        sock, protocol_factory, ssl, server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout, ssl_shutdown_timeout=ssl_shutdown_timeout)


async def create_server(loop, protocol_factory, path, *, sock, backlog, ssl,
                        ssl_handshake_timeout, ssl_shutdown_timeout, start_serving,
                        cleanup_socket):
    """As asyncio's create_unix_server; `cleanup_socket` works on every Python."""
    if isinstance(ssl, bool):
        raise TypeError("ssl argument must be an SSLContext or None")
    check_tls_options(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if path is not None:
        if sock is not None:
            raise ValueError("path and sock can not be specified at the same time")
        sock = bind(os.fspath(path))
    elif sock is None:
        raise ValueError("path was not specified, and no sock specified")
    else:
        check_stream_socket(sock)
    if cleanup_socket:
        remember_file(loop, sock)
    sock.setblocking(False)
    server = Server(loop, [sock], protocol_factory, ssl, backlog, ssl_handshake_timeout,
                    ssl_shutdown_timeout)
    if start_serving:
        await server.start_serving()
    return server


def bind(path):
    """A socket bound to `path`; a socket file left behind there is replaced."""
    if not is_abstract(path):
        try:
            if stat.S_ISSOCK(posix.stat(path).st_mode):
                posix.remove(path)
        except FileNotFoundError:
            pass
        except OSError as exc:
            # bind() says better what is wrong with this path.
            logger.error("Unable to check or remove stale UNIX socket %r: %r", path, exc)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            message = f"Address {path!r} is already in use"
            raise os_error_saying(errno.EADDRINUSE, message) from None
        raise
    except BaseException:
        sock.close()
        raise
    return sock


def is_abstract(path):
    """True for a name without a file: unix(7)."""
    return path[:1] in ("\0", b"\0", "", b"")


def remember_file(loop, sock):
    """Note the file of a bound socket, which `remove_file` will remove."""
    path = sock.getsockname()
    if is_abstract(path):
        return
    with contextlib.suppress(FileNotFoundError):
        loop._unix_files[sock.fileno()] = (path, posix.stat(path).st_ino)


def remove_file(loop, sock):
    """Remove the file that `remember_file` noted, unless another socket took its place."""
    path, inode = loop._unix_files.pop(sock.fileno(), (None, None))
    if path is None:
        return
    try:
        if posix.stat(path).st_ino == inode:
            posix.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        logger.error("Unable to clean up listening UNIX socket %r: %r", path, exc)

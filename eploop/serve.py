"""Servers: what create_server and create_unix_server share, and accepting TLS connections."""

import asyncio
import socket
import sys

from eploop.server import adopt
from eploop.transports.listener import Listener, stop_listening


async def create_server(loop, stock_create_server, protocol_factory, host, port, *,
                        keep_alive, start_serving, **options):
    """As asyncio's create_server; `keep_alive` works on every Python.

    Args:
        stock_create_server: asyncio's own, bound to the loop.
        keep_alive: Set SO_KEEPALIVE on the listening sockets, which hand it on.
    """
    if sys.version_info >= (3, 13):
        options["keep_alive"] = keep_alive
    stock = await stock_create_server(
        protocol_factory, host, port, start_serving=False, **options)
    server = adopt(stock)
    if keep_alive:
        for listening in server._sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
    if start_serving:
        await server.start_serving()
    return server


def start_serving(loop, protocol_factory, listening, ssl_context, server, backlog,
                  handshake_timeout, shutdown_timeout):
    """Accept connections of the listening socket `listening` from now on."""
    accept_wrapped = None
    if ssl_context is not None:
        def accept_wrapped(connection, address):
            loop.create_task(accept_tls(
                loop, protocol_factory, connection, address, ssl_context, server,
                handshake_timeout, shutdown_timeout))
    Listener(loop, listening, protocol_factory, server, backlog, accept_wrapped)


def stop_serving(loop, listening):
    """Accept no more, and close the listening socket."""
    if listening.fileno() >= 0:
        stop_listening(loop, listening)
    listening.close()


async def accept_tls(loop, protocol_factory, connection, address, ssl_context, server,
                     handshake_timeout, shutdown_timeout):
    """Wrap one accepted connection; failures are the peer's affair and only logged in debug mode.

    Source: CPython 3.13 asyncio.selector_events.BaseSelectorEventLoop._accept_connection2.
    """
    protocol = transport = None
    try:
        protocol = protocol_factory()
        waiter = loop.create_future()
        transport = loop._make_ssl_transport(
            connection, protocol, ssl_context, waiter=waiter, server_side=True,
            extra={"peername": address}, server=server,
            ssl_handshake_timeout=handshake_timeout, ssl_shutdown_timeout=shutdown_timeout)
        try:
            await waiter
        except BaseException:
            # Closing, not aborting: the alert that says why is still to be sent.
            transport.close()
            raise
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError):
        raise
    except BaseException as exc:
        if transport is None:
            connection.close()
        if loop.get_debug() or transport is None:
            context = {
                "message": "Error on transport creation for incoming connection",
                "exception": exc,
            }
            if protocol is not None:
                context["protocol"] = protocol
            if transport is not None:
                context["transport"] = transport
            loop.call_exception_handler(context)

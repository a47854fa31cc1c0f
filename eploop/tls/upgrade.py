"""TLS from the roof's side: transports made for a new connection, and start_tls on an old one.

Source: CPython 3.13 asyncio.sslproto.SSLProtocol.__init__, asyncio.base_events.BaseEventLoop
.start_tls; for bytes read ahead, CPython 3.15 asyncio.base_events.BaseEventLoop.start_tls.
"""

from asyncio import constants, streams

from eploop.tls.transport import make_tls_transport, read_ahead

try:
    import ssl
except ImportError:
    ssl = None


def make_transport(loop, protocol, context, waiter, *, server_side, server_hostname,
                   handshake_timeout, shutdown_timeout, made=False):
    """A TLS transport; its `_ssl_protocol` is to be the protocol of the connection below.

    Args:
        context: An SSLContext; None: a client's default one.
        handshake_timeout, shutdown_timeout: Seconds, None: asyncio's defaults.

    Raises:
        RuntimeError: This Python has no ssl module.
        ValueError: A timeout is not positive, or a server has no context.
    """
    if ssl is None:
        raise RuntimeError("stdlib ssl module not available")
    if not context:
        context = default_context(server_side, server_hostname)
    return make_tls_transport(
        loop, loop._shared_tls, protocol, context, waiter, server_side=server_side,
        server_hostname=None if server_side else server_hostname or None,
        handshake_timeout=check_timeout("ssl_handshake_timeout", handshake_timeout,
                                        constants.SSL_HANDSHAKE_TIMEOUT),
        shutdown_timeout=check_timeout("ssl_shutdown_timeout", shutdown_timeout,
                                       constants.SSL_SHUTDOWN_TIMEOUT),
        made=made)


def check_timeout(name, seconds, default):
    if seconds is None:
        return default
    if seconds <= 0:
        raise ValueError(f"{name} should be a positive number, got {seconds}")
    return seconds


def default_context(server_side, server_hostname):
    if server_side:
        raise ValueError("Server side SSL needs a valid SSLContext")
    context = ssl.create_default_context()
    if not server_hostname:
        context.check_hostname = False
    return context


async def start_tls(loop, transport, protocol, context, *, server_side, server_hostname,
                    handshake_timeout, shutdown_timeout):
    """Go on with TLS on `transport`; the transport that `protocol` uses from now on.

    What a StreamReader has read ahead belongs to the peer's handshake.

    Raises:
        TypeError: `context` is no SSLContext, or `transport` cannot be upgraded.
    """
    if ssl is None:
        raise RuntimeError("Python ssl module is not available")
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(
            f"sslcontext is expected to be an instance of ssl.SSLContext, got {context!r}")
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    waiter = loop.create_future()
    upgraded = make_transport(
        loop, protocol, context, waiter, server_side=server_side,
        server_hostname=server_hostname, handshake_timeout=handshake_timeout,
        shutdown_timeout=shutdown_timeout, made=True)
    lower = upgraded._ssl_protocol
    transport.pause_reading()
    read_ahead(upgraded, take_read_ahead(protocol))
    transport.set_protocol(lower)
    steps = [
        loop.call_soon(lower.connection_made, transport),
        loop.call_soon(transport.resume_reading),
    ]
    try:
        await waiter
    except BaseException:
        transport.close()
        for step in steps:
            step.cancel()
        raise
    return upgraded


def take_read_ahead(protocol):
    """The bytes that wait in the StreamReader of `protocol`, if it has one."""
    reader = None
    if isinstance(protocol, streams.StreamReaderProtocol):
        reader = protocol._stream_reader
    if reader is None:
        return b""
    data = bytes(reader._buffer)
    reader._buffer.clear()
    return data

"""TLS by asyncio's own implementation, over our transports, with some of its faults mended.

Source: CPython 3.13 asyncio.sslproto, asyncio.base_events.BaseEventLoop.start_tls; for bytes read
ahead, CPython 3.15 asyncio.base_events.BaseEventLoop.start_tls.
"""

import ssl
import weakref
from asyncio import sslproto, streams
from asyncio.sslproto import SSLProtocolState

RECORD_BYTES = 16384        # the most that one TLS record holds


class SSLTransport(sslproto._SSLProtocolTransport):
    """asyncio's transport; also refuses what is not bytes-like before anything is sent."""

    def writelines(self, list_of_data):
        """Write each item of an iterable of bytes-like objects."""
        parts = list(list_of_data)
        for part in parts:
            if not isinstance(part, (bytes, bytearray, memoryview)):
                raise TypeError(
                    f"data argument must be a bytes-like object, not {type(part).__name__!r}")
        super().writelines(parts)


class SSLProtocol(sslproto.SSLProtocol):
    """asyncio's SSLProtocol; also remembers the addresses of the connection after its end.

    The protocol above is called in the connection's context, whoever writes, resumes or closes.
    """

    _context = None

    def _get_app_transport(self):
        if self._app_transport is None and not self._app_transport_created:
            self._app_transport = SSLTransport(self._loop, self)
            self._app_transport_created = True
        return super()._get_app_transport()

    def _set_app_protocol(self, app_protocol):
        super()._set_app_protocol(app_protocol)
        if self._app_protocol_is_buffer:
            guard = BufferGuard(app_protocol)
            self._app_protocol_get_buffer = guard.get_buffer
            self._app_protocol_buffer_updated = guard.buffer_updated

    def _get_extra_info(self, name, default=None):
        if self._transport is None and name not in self._extra:
            return self._below.get_extra_info(name, default)
        return super()._get_extra_info(name, default)

    def connection_made(self, transport):
        self._below = transport
        self._context = context_of(transport)
        super().connection_made(transport)

    def _inside(self, function):
        """Call it in the connection's context, unless there is no connection yet."""
        context = self._context
        try:
            if context is not None:
                context.run(int)
        except RuntimeError:
            context = None      # entered already, as one of the protocol's own callbacks asks
        if context is None:
            function()
        else:
            context.run(function)

    def _on_handshake_complete(self, handshake_exc):
        # Data that came with the handshake wait for whoever waits for the connection: after
        # start_tls() the protocol must know its new transport before it answers.
        self._do_read = do_nothing
        try:
            super()._on_handshake_complete(handshake_exc)
        finally:
            del self._do_read
        self._loop.call_soon(self._go_on_reading, context=self._context)

    def _do_shutdown(self):
        # What the peer sent before it heard of our end is in the way of its answer, which OpenSSL
        # takes for an error (CPython's bpo-39951).
        try:
            while not self._eof_received and self._sslobj.read(RECORD_BYTES):
                pass
        except (*sslproto.SSLAgainErrors, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as exc:
            self._on_shutdown_complete(exc)
            return
        super()._do_shutdown()

    def _control_app_writing(self):
        size = self._get_write_buffer_size()
        if self._app_writing_paused:
            is_due = size <= self._outgoing_low_water
        else:
            is_due = size >= self._outgoing_high_water
        if is_due:
            self._inside(super()._control_app_writing)

    def _resume_reading(self):
        if self._app_reading_paused:
            self._app_reading_paused = False
            self._loop.call_soon(self._go_on_reading, context=self._context)

    def _go_on_reading(self):
        if self._state is SSLProtocolState.WRAPPED:
            self._do_read()
        elif self._state is SSLProtocolState.FLUSHING:
            self._do_flush()
        elif self._state is SSLProtocolState.SHUTDOWN:
            self._do_shutdown()

    def _start_shutdown(self):
        # Nothing is delivered after close(), as without TLS; what is unsent is sent.
        self._do_read = self._do_write
        try:
            self._inside(super()._start_shutdown)
        finally:
            del self._do_read


def do_nothing():
    pass


def context_of(transport):
    """The context of the connection below: a stream, or TLS itself."""
    if isinstance(transport, sslproto._SSLProtocolTransport):
        return transport._ssl_protocol._context
    return getattr(transport, "_context", None)    # None: a transport of somebody else


class BufferGuard:
    """Shows asyncio a view of the protocol's buffer: of a bytearray it would fill a copy."""

    def __init__(self, protocol):
        self._protocol = protocol
        self._view = None

    def get_buffer(self, sizehint):
        view = memoryview(self._protocol.get_buffer(sizehint)).cast("B")
        if not view.nbytes:
            raise RuntimeError("get_buffer() returned an empty buffer")
        # Weakly: what is held keeps a bytearray from being resized.
        self._view = weakref.ref(view)
        return view

    def buffer_updated(self, nbytes):
        view = self._view()
        if view is not None:
            view.release()
        self._protocol.buffer_updated(nbytes)


async def start_tls(loop, transport, protocol, context, *, server_side, server_hostname,
                    handshake_timeout, shutdown_timeout):
    """Go on with TLS on `transport`; the transport that `protocol` uses from now on.

    What a StreamReader has read ahead belongs to the peer's handshake.

    Raises:
        TypeError: `context` is no SSLContext, or `transport` cannot be upgraded.
    """
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(
            f"sslcontext is expected to be an instance of ssl.SSLContext, got {context!r}")
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    waiter = loop.create_future()
    wrapped = SSLProtocol(
        loop, protocol, context, waiter, server_side, server_hostname,
        ssl_handshake_timeout=handshake_timeout, ssl_shutdown_timeout=shutdown_timeout,
        call_connection_made=False)
    transport.pause_reading()
    wrapped._incoming.write(take_read_ahead(protocol))
    transport.set_protocol(wrapped)
    steps = [
        loop.call_soon(wrapped.connection_made, transport),
        loop.call_soon(transport.resume_reading),
    ]
    try:
        await waiter
    except BaseException:
        transport.close()
        for step in steps:
            step.cancel()
        raise
    return wrapped._app_transport


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

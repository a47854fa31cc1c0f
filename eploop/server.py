"""The server object: asyncio.Server with the newest asyncio's behaviour on every Python.

Source: CPython 3.13 asyncio.base_events.Server.
"""

import asyncio

from eploop.transports.listener import transports_of


class Server(asyncio.base_events.Server):
    """An asyncio.Server; `wait_closed` waits and `close_clients` works on Python 3.11 too.

    The accepted transports are found through the loop's table of descriptors, so a connection
    costs the server a counter and nothing else.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._open_count = 0

    def _attach(self, transport=None):
        self._open_count += 1

    def _detach(self, transport=None):
        self._open_count -= 1
        self._wake_if_over()

    def _wake_if_over(self):
        if self._sockets is not None or self._open_count or self._waiters is None:
            return
        waiters, self._waiters = self._waiters, None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self):
        """Stop listening. Connections that were accepted stay open."""
        sockets = self._sockets
        if sockets is None:
            return
        self._sockets = None
        for listening in sockets:
            self._loop._stop_serving(listening)
        self._serving = False
        forever = self._serving_forever_fut
        if forever is not None and not forever.done():
            forever.cancel()
            self._serving_forever_fut = None
        self._wake_if_over()

    def close_clients(self):
        """Close every connection that this server accepted: `transport.close()`."""
        for transport in transports_of(self._loop, self):
            transport.close()

    def abort_clients(self):
        """Abort every connection that this server accepted: `transport.abort()`."""
        for transport in transports_of(self._loop, self):
            transport.abort()

    async def serve_forever(self):
        """Accept connections until cancelled; then close the server and its connections."""
        if self._serving_forever_fut is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._sockets is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._start_serving()
        self._serving_forever_fut = self._loop.create_future()
        try:
            await self._serving_forever_fut
        except asyncio.CancelledError:
            try:
                self.close()
                self.close_clients()
                await self.wait_closed()
            finally:
                raise
        finally:
            self._serving_forever_fut = None

    async def wait_closed(self):
        """Wait until the server is closed and its last connection is gone."""
        if self._waiters is None:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter


def adopt(stock):
    """An eploop Server in the place of `stock`, an asyncio.Server that does not serve yet."""
    server = Server(
        stock._loop, stock._sockets, stock._protocol_factory, stock._ssl_context, stock._backlog,
        stock._ssl_handshake_timeout, stock._ssl_shutdown_timeout)
    stock._sockets = None
    return server

"""The roof: asyncio.BaseEventLoop's hooks over the compiled core, one line each."""

import asyncio
import functools
import sys

from eploop import names, older, process, sendfile, serve, sockops, unix
from eploop.connect import OwnSocketFactory
from eploop.core import LoopCore
from eploop.options import check_busy_poll, resolve_mode, resolve_tls_path
from eploop.signals import Signals
from eploop.statistics import Statistics
from eploop.tls import upgrade
from eploop.tls.engine import SharedTLS
from eploop.transports.datagram import make_datagram_transport
from eploop.transports.pipe import make_read_pipe_transport, make_write_pipe_transport
from eploop.transports.stream import make_stream_transport

# Programs written for an older asyncio remove the file themselves, and fail if it is gone.
CLEANS_SOCKETS = sys.version_info >= (3, 13)


class Loop(LoopCore, asyncio.BaseEventLoop):
    """An asyncio event loop over epoll.

    Args:
        mode: "edge", "oneshot" or "level": how connections are registered with epoll. None: the
            environment variable EPLOOP_MODE decides, and without it "edge".
        busy_poll_us: Microseconds to spin before blocking. Lower latency for a whole processor.
        precise_timers: Do not round waits up to a 50 microsecond grid. Timers that lie close
            together then cost a wake-up each.

    Raises:
        ValueError: An unknown mode, an option out of range, or a wrong EPLOOP_TLS.
    """

    def __new__(cls, mode=None, *, busy_poll_us=0, precise_timers=False):
        shared_tls = SharedTLS(resolve_tls_path())
        self = super().__new__(cls, resolve_mode(mode), busy_poll_us=check_busy_poll(busy_poll_us),
                               precise_timers=precise_timers)
        self._shared_tls = shared_tls
        return self

    def __init__(self, mode=None, *, busy_poll_us=0, precise_timers=False):
        asyncio.BaseEventLoop.__init__(self)
        self._unix_files = {}
        self._signals = Signals(self)
        self._set_run_hooks(self._signals)

    def close(self):
        """Close the loop, which must not run. What is queued is dropped."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        self._signals.close()
        asyncio.BaseEventLoop.close(self)
        self._close_core()

    def statistics(self):
        """A snapshot of the loop's counters: see `eploop.Statistics`."""
        return Statistics(**self._counters())

    # ---- tasks

    def create_task(self, coro, **kwargs):
        """Schedule a coroutine; keyword arguments reach the task, or the task factory."""
        factory = self.get_task_factory()
        if factory is None:
            self._check_closed()
            task = asyncio.Task(coro, loop=self, **kwargs)
            if self._debug and task._source_traceback:
                del task._source_traceback[-1]    # this frame
            return task
        if sys.version_info < (3, 14):
            self._check_closed()
            return older.make_task(self, factory, coro, **kwargs)
        return asyncio.BaseEventLoop.create_task(self, coro, **kwargs)

    # ---- connections

    def _make_socket_transport(self, sock, protocol, waiter=None, *, extra=None, server=None,
                               context=None):
        return make_stream_transport(self, sock, protocol, waiter, extra=extra, server=server)

    def _make_ssl_transport(self, rawsock, protocol, sslcontext, waiter=None, *,
                            server_side=False, server_hostname=None, extra=None, server=None,
                            ssl_handshake_timeout=None, ssl_shutdown_timeout=None, context=None):
        transport = upgrade.make_transport(
            self, protocol, sslcontext, waiter, server_side=server_side,
            server_hostname=server_hostname, handshake_timeout=ssl_handshake_timeout,
            shutdown_timeout=ssl_shutdown_timeout)
        self._make_socket_transport(rawsock, transport._ssl_protocol, extra=extra, server=server)
        return transport

    async def create_connection(self, protocol_factory, *args, sock=None, **options):
        """As the newest asyncio."""
        if sock is None:
            protocol_factory = OwnSocketFactory(protocol_factory)
        connect = super().create_connection
        if sys.version_info < (3, 12):
            connect = functools.partial(older.create_connection, connect)
        return await connect(protocol_factory, *args, sock=sock, **options)

    async def _create_connection_transport(self, sock, protocol_factory, *args, **options):
        if isinstance(protocol_factory, OwnSocketFactory):
            protocol_factory.begin(sock)
        return await super()._create_connection_transport(sock, protocol_factory, *args, **options)

    async def start_tls(self, transport, protocol, sslcontext, *, server_side=False,
                        server_hostname=None, ssl_handshake_timeout=None,
                        ssl_shutdown_timeout=None):
        """As asyncio; bytes that a StreamReader has read ahead go into the handshake."""
        return await upgrade.start_tls(
            self, transport, protocol, sslcontext, server_side=server_side,
            server_hostname=server_hostname, handshake_timeout=ssl_handshake_timeout,
            shutdown_timeout=ssl_shutdown_timeout)

    async def create_unix_connection(self, protocol_factory, path=None, *, ssl=None, sock=None,
                                     server_hostname=None, ssl_handshake_timeout=None,
                                     ssl_shutdown_timeout=None):
        """As asyncio."""
        return await unix.create_connection(
            self, protocol_factory, path, ssl=ssl, sock=sock, server_hostname=server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout)

    if sys.version_info < (3, 12):

        async def _connect_sock(self, exceptions, *args):
            return await older.connect_sock(super()._connect_sock, exceptions, *args)

    if sys.version_info < (3, 13):

        async def shutdown_default_executor(self, timeout=None):
            """As the newest asyncio."""
            await older.shutdown_default_executor(self, timeout)

    # ---- servers

    async def create_server(self, protocol_factory, host=None, port=None, *, keep_alive=None,
                            start_serving=True, **options):
        """As asyncio; `keep_alive` works on every Python."""
        return await serve.create_server(
            self, super().create_server, protocol_factory, host, port, keep_alive=keep_alive,
            start_serving=start_serving, **options)

    async def create_unix_server(self, protocol_factory, path=None, *, sock=None, backlog=100,
                                 ssl=None, ssl_handshake_timeout=None, ssl_shutdown_timeout=None,
                                 start_serving=True, cleanup_socket=CLEANS_SOCKETS):
        """As asyncio; `cleanup_socket` works on every Python, and is on where asyncio has it."""
        return await unix.create_server(
            self, protocol_factory, path, sock=sock, backlog=backlog, ssl=ssl,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout, start_serving=start_serving,
            cleanup_socket=cleanup_socket)

    def _start_serving(self, protocol_factory, sock, sslcontext=None, server=None, backlog=100,
                       ssl_handshake_timeout=None, ssl_shutdown_timeout=None, context=None):
        serve.start_serving(self, protocol_factory, sock, sslcontext, server, backlog,
                            ssl_handshake_timeout, ssl_shutdown_timeout)

    def _stop_serving(self, sock):
        unix.remove_file(self, sock)
        serve.stop_serving(self, sock)

    # ---- names

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):
        """As asyncio; addresses are answered without a thread."""
        answer = names.quick_answer(host, port, family, type, proto, flags)
        if answer is not None:
            return [answer]
        return await names.getaddrinfo(super().getaddrinfo, host, port, family=family, type=type,
                                       proto=proto, flags=flags)

    async def getnameinfo(self, sockaddr, flags=0):
        """As asyncio; purely numeric answers are given without a thread."""
        return await names.getnameinfo(super().getnameinfo, sockaddr, flags)

    # ---- sockets

    def sock_connect(self, sock, address):
        """As asyncio."""
        return sockops.connect(self, sock, address)

    def sock_accept(self, sock):
        """As asyncio."""
        return sockops.accept(self, sock)

    def sock_recv(self, sock, nbytes):
        """As asyncio."""
        return sockops.recv(self, sock, nbytes)

    def sock_recv_into(self, sock, buf):
        """As asyncio."""
        return sockops.recv_into(self, sock, buf)

    def sock_recvfrom(self, sock, bufsize):
        """As asyncio."""
        return sockops.recvfrom(self, sock, bufsize)

    def sock_recvfrom_into(self, sock, buf, nbytes=0):
        """As asyncio."""
        return sockops.recvfrom_into(self, sock, buf, nbytes)

    def sock_sendto(self, sock, data, address):
        """As asyncio; a host name is looked up without blocking."""
        return sockops.sendto(self, sock, data, address)

    def sock_sendall(self, sock, data):
        """As asyncio."""
        return sockops.sendall(self, sock, data)

    async def _sock_sendfile_native(self, sock, file, offset, count):
        return await sendfile.to_socket(self, sock, file, offset, count)

    async def _sendfile_native(self, transp, file, offset, count):
        self._check_sendfile_params(transp.get_extra_info("socket"), file, offset, count)
        return await sendfile.to_transport(self, transp, file, offset, count)

    async def _sendfile_fallback(self, transp, file, offset, count):
        # asyncio's leaves the file where it is when the offset is 0.
        if hasattr(file, "seek"):
            file.seek(offset)
        return await super()._sendfile_fallback(transp, file, offset, count)

    async def _sock_sendfile_fallback(self, sock, file, offset, count):
        if hasattr(file, "seek"):
            file.seek(offset)
        return await super()._sock_sendfile_fallback(sock, file, offset, count)

    # ---- datagrams

    if sys.version_info < (3, 13):

        async def create_datagram_endpoint(self, protocol_factory, local_addr=None,
                                           remote_addr=None, *, sock=None, **options):
            """As the newest asyncio: `sock` may be of any kind that carries packets."""
            if older.is_packet_socket(sock) and not (local_addr or remote_addr or options):
                return await older.packet_endpoint(self, protocol_factory, sock)
            return await super().create_datagram_endpoint(
                protocol_factory, local_addr, remote_addr, sock=sock, **options)

    def _make_datagram_transport(self, sock, protocol, address=None, waiter=None, extra=None):
        return make_datagram_transport(self, sock, protocol, address, waiter, extra)

    # ---- pipes and processes

    def _make_read_pipe_transport(self, pipe, protocol, waiter=None, extra=None):
        return make_read_pipe_transport(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(self, pipe, protocol, waiter=None, extra=None):
        return make_write_pipe_transport(self, pipe, protocol, waiter, extra)

    async def _make_subprocess_transport(self, protocol, args, shell, stdin, stdout, stderr,
                                         bufsize, extra=None, **options):
        return await process.start(self, protocol, args, shell, stdin, stdout, stderr, bufsize,
                                   extra, options)

    # ---- signals

    def add_signal_handler(self, sig, callback, *args):
        """As asyncio."""
        self._signals.add(sig, callback, args)

    def remove_signal_handler(self, sig):
        """As asyncio: True if there was a handler."""
        return self._signals.remove(sig)

"""create_server and what it returns."""
import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import weakref

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.net import BIG, LOOPBACK, Peer, has_ipv6, make_reset
from support.protocols import Echo, Recorder
from support.waiting import is_idle, quiet, soon, turns, until

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


class Accepted(Recorder):
    """Collects itself in `all`, a list given by the factory."""

    def __init__(self, collected):
        super().__init__()
        collected.append(self)


@contextlib.asynccontextmanager
async def serving(loop, factory=Echo, host=LOOPBACK, port=0, **options):
    """A server; at the end it and the connections are closed."""
    server = await loop.create_server(factory, host, port, **options)
    try:
        yield server
    finally:
        server.close()
        await quiet()


def address(server, index=0):
    return server.sockets[index].getsockname()[:2]


async def ask(sock, text=b"hello"):
    """Talk to an Echo protocol over a plain socket."""
    peer = Peer(sock)
    await peer.send(text)
    return await peer.recv_exactly(len(text))


async def test_clients_are_served(loop):
    async with serving(loop) as server:
        for _ in range(3):
            with socket.create_connection(address(server)) as sock:
                assert await ask(sock) == b"hello"


async def test_factory_is_called_for_each_connection(loop):
    accepted = []
    async with serving(loop, lambda: Accepted(accepted)) as server:
        socks = [socket.create_connection(address(server)) for _ in range(3)]
        await until(lambda: len(accepted) == 3)
        for sock in socks:
            sock.close()
        for protocol in accepted:
            await protocol.until_lost()


async def test_accepted_transport_knows_its_addresses(loop):
    accepted = []
    async with serving(loop, lambda: Accepted(accepted)) as server:
        with socket.create_connection(address(server)) as sock:
            await until(lambda: accepted and accepted[0].transport)
            transport = accepted[0].transport
            assert transport.get_extra_info("peername") == sock.getsockname()
            assert transport.get_extra_info("sockname") == sock.getpeername()
            assert transport.get_extra_info("socket").fileno() > 0
        await accepted[0].until_lost()
        assert transport.get_extra_info("peername") is not None


async def test_data_sent_right_after_the_connect_arrive(loop):
    accepted = []
    async with serving(loop, lambda: Accepted(accepted)) as server:
        for i in range(20):
            with socket.create_connection(address(server)) as sock:
                sock.send(b"%d" % i)
        await until(lambda: len(accepted) == 20)
        for protocol in accepted:
            assert await protocol.until_lost() is None
        assert sorted(int(protocol.received) for protocol in accepted) == list(range(20))


async def test_sockets(loop):
    async with serving(loop) as server:
        assert isinstance(server.sockets, tuple)
        assert len(server.sockets) == 1
        sock = server.sockets[0]
        assert sock.family == socket.AF_INET
        assert sock.getsockname()[0] == LOOPBACK
        assert sock.getsockname()[1] > 0
    assert server.sockets == ()


async def test_server_is_an_asyncio_server(loop):
    async with serving(loop) as server:
        assert isinstance(server, asyncio.AbstractServer)
        assert server.get_loop() is loop


async def test_several_hosts(loop):
    async with serving(loop, host=[LOOPBACK, "127.0.0.2"]) as server:
        assert sorted(sock.getsockname()[0] for sock in server.sockets) == [LOOPBACK, "127.0.0.2"]
        for index in range(2):
            with socket.create_connection(address(server, index)) as sock:
                assert await ask(sock) == b"hello"


@pytest.mark.parametrize("host", [None, ""])
async def test_all_interfaces(loop, host):
    async with serving(loop, host=host) as server:
        families = {sock.family for sock in server.sockets}
        assert socket.AF_INET in families
        index = [sock.family for sock in server.sockets].index(socket.AF_INET)
        port = address(server, index)[1]
        with socket.create_connection((LOOPBACK, port)) as sock:
            assert await ask(sock) == b"hello"


@needs_ipv6
async def test_ipv6(loop):
    async with serving(loop, host="::1") as server:
        assert server.sockets[0].family == socket.AF_INET6
        with socket.create_connection(address(server)) as sock:
            assert await ask(sock) == b"hello"


async def test_family_can_be_chosen(loop):
    async with serving(loop, host=None, family=socket.AF_INET) as server:
        assert {sock.family for sock in server.sockets} == {socket.AF_INET}


async def test_given_socket_is_used(loop):
    sock = socket.create_server((LOOPBACK, 0))
    server = await loop.create_server(Echo, sock=sock)
    assert server.sockets[0].fileno() == sock.fileno()
    with socket.create_connection(sock.getsockname()) as client:
        assert await ask(client) == b"hello"
    server.close()
    await turns()
    assert sock.fileno() == -1


async def test_given_socket_need_not_listen_yet(loop):
    sock = socket.socket()
    sock.bind((LOOPBACK, 0))
    server = await loop.create_server(Echo, sock=sock)
    with socket.create_connection(sock.getsockname()) as client:
        assert await ask(client) == b"hello"
    server.close()
    await quiet()


async def test_socket_together_with_an_address_is_refused(loop):
    with socket.socket() as sock:
        with pytest.raises(ValueError, match="host/port and sock"):
            await loop.create_server(Echo, LOOPBACK, 0, sock=sock)
        assert sock.fileno() != -1


async def test_neither_address_nor_socket_is_refused(loop):
    with pytest.raises(ValueError, match="Neither host/port nor sock"):
        await loop.create_server(Echo)


async def test_datagram_socket_is_refused(loop):
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        pytest.raises(ValueError, match="Stream Socket was expected"),
    ):
        await loop.create_server(Echo, sock=sock)


async def test_boolean_ssl_is_refused(loop):
    with pytest.raises(TypeError, match="ssl"):
        await loop.create_server(Echo, LOOPBACK, 0, ssl=True)


async def test_timeouts_without_ssl_are_refused(loop):
    for name in ("ssl_handshake_timeout", "ssl_shutdown_timeout"):
        with pytest.raises(ValueError, match=name):
            await loop.create_server(Echo, LOOPBACK, 0, **{name: 1.0})


async def test_port_in_use(loop):
    async with serving(loop) as server:
        with pytest.raises(OSError, match="address") as caught:
            await loop.create_server(Echo, *address(server))
        assert caught.value.errno == errno.EADDRINUSE


async def test_one_address_in_use_leaves_nothing_behind(loop):
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="address"):
            await loop.create_server(Echo, [LOOPBACK, "127.0.0.2"], port)
        async with serving(loop, port=port):
            pass


async def test_reuse_address_by_default(loop):
    async with serving(loop) as server:
        assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    async with serving(loop, reuse_address=False) as server:
        assert not server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


async def test_reuse_port(loop):
    async with serving(loop, reuse_port=True) as first:
        assert first.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
        async with serving(loop, host=LOOPBACK, port=address(first)[1], reuse_port=True) as second:
            assert address(second) == address(first)
            for _ in range(10):
                with socket.create_connection(address(first)) as sock:
                    assert await ask(sock) == b"hello"


@differs_from_asyncio("it does not have that yet", below=(3, 13))
async def test_keep_alive(loop):
    async with serving(loop, keep_alive=True) as server:
        assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    async with serving(loop, keep_alive=False) as server:
        assert not server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_start_serving_later(loop):
    async with serving(loop, start_serving=False) as server:
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(server))
        await server.start_serving()
        assert server.is_serving()
        await server.start_serving()
        with socket.create_connection(address(server)) as sock:
            assert await ask(sock) == b"hello"


async def test_close_stops_listening(loop):
    async with serving(loop) as server:
        where = address(server)
        assert server.is_serving()
        server.close()
        assert not server.is_serving()
        await turns()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where)
        server.close()


async def test_close_leaves_connections_alone(loop):
    async with serving(loop) as server:
        with socket.create_connection(address(server)) as sock:
            assert await ask(sock) == b"hello"
            server.close()
            await turns()
            assert await ask(sock, b"still here") == b"still here"


async def test_close_with_queued_connections(loop):
    """What was never accepted is reset or closed, nothing is left in the loop."""
    listener = socket.create_server((LOOPBACK, 0), backlog=100)
    socks = [socket.create_connection(listener.getsockname()) for _ in range(50)]
    server = await loop.create_server(Echo, sock=listener, backlog=100)
    server.close()
    await quiet()
    for sock in socks:
        sock.settimeout(5)
        sock.close()
    await quiet()


async def test_wait_closed_without_connections(loop):
    async with serving(loop) as server:
        server.close()
        await soon(server.wait_closed())


@differs_from_asyncio("wait_closed returned at once when close was called first", below=(3, 12, 1))
async def test_wait_closed_waits_for_the_connections(loop):
    async with serving(loop) as server:
        with socket.create_connection(address(server)) as sock:
            await ask(sock)
            server.close()
            waiting = loop.create_task(server.wait_closed())
            await quiet()
            assert not waiting.done()
        await soon(waiting)


async def test_context_manager_closes(loop):
    server = await loop.create_server(Echo, LOOPBACK, 0)
    async with server as entered:
        assert entered is server
        assert server.is_serving()
    assert not server.is_serving()


async def test_serve_forever_until_cancelled(loop):
    server = await loop.create_server(Echo, LOOPBACK, 0, start_serving=False)
    task = loop.create_task(server.serve_forever())
    await until(server.is_serving)
    with socket.create_connection(address(server)) as sock:
        assert await ask(sock) == b"hello"
    with pytest.raises(RuntimeError, match="already being awaited"):
        await server.serve_forever()
    await quiet()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert not server.is_serving()


async def test_serve_forever_ends_with_close(loop):
    server = await loop.create_server(Echo, LOOPBACK, 0)
    task = loop.create_task(server.serve_forever())
    await turns()
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    with pytest.raises(RuntimeError, match="closed"):
        await server.serve_forever()


@differs_from_asyncio("it does not have that yet", below=(3, 13))
@pytest.mark.parametrize("method", ["close_clients", "abort_clients"])
async def test_clients_can_be_sent_away(loop, method):
    accepted = []
    async with serving(loop, lambda: Accepted(accepted)) as server:
        socks = [socket.create_connection(address(server)) for _ in range(3)]
        await until(lambda: len(accepted) == 3)
        await turns()
        server.close()
        getattr(server, method)()
        for protocol in accepted:
            assert await protocol.until_lost() is None
        await soon(server.wait_closed())
        for sock in socks:
            sock.close()


@differs_from_asyncio("it does not have that yet", below=(3, 13))
async def test_close_clients_flushes_and_abort_clients_does_not(loop):
    class Verbose(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            transport.write(b"x" * (2 * BIG))

    for method, flushed in (("close_clients", True), ("abort_clients", False)):
        async with serving(loop, Verbose) as server:
            with socket.create_connection(address(server)) as sock:
                await until(lambda s=sock: Peer(s).recv_now(1))
                server.close()
                getattr(server, method)()
                total = 1
                with contextlib.suppress(ConnectionResetError):
                    while data := await Peer(sock).recv(1 << 20):
                        total += len(data)
                assert (total == 2 * BIG) is flushed
            await soon(server.wait_closed())


@differs_from_asyncio("it is silent outside of debug mode, and leaves the connection open")
async def test_exception_in_the_factory_is_reported(loop, unhandled):
    calls = []

    def factory():
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return Echo()

    async with serving(loop, factory) as server:
        with socket.create_connection(address(server)) as sock:
            await until(lambda: len(unhandled))
            contexts = unhandled.take()
            assert isinstance(contexts[0]["exception"], ZeroDivisionError)
            assert await Peer(sock).recv() == b""       # not left open
        with socket.create_connection(address(server)) as sock:
            assert await ask(sock) == b"hello"


async def test_connection_reset_before_accept_does_no_harm(loop):
    listener = socket.create_server((LOOPBACK, 0))
    for _ in range(10):
        sock = socket.create_connection(listener.getsockname())
        make_reset(sock)
        sock.close()
    accepted = []
    async with contextlib.AsyncExitStack():
        server = await loop.create_server(lambda: Accepted(accepted), sock=listener)
        with socket.create_connection(address(server)) as sock:
            sock.send(b"alive")
            await until(lambda: any(p.received == b"alive" for p in accepted))
        for protocol in accepted:
            await protocol.until_lost()
        server.close()
        await quiet()


@without_debug("a thousand connections")
@pytest.mark.time_limit(60)
async def test_burst_of_a_thousand_connections(loop):
    accepted = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("too few descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    socks = []
    try:
        async with serving(loop, lambda: Accepted(accepted), backlog=1024) as server:
            for _ in range(1000):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(address(server))
                socks.append(sock)
            started = loop.time()
            await asyncio.sleep(0.001)
            assert loop.time() - started < 5        # the loop stays responsive
            await until(lambda: len(accepted) == 1000)
            for sock in socks:
                sock.close()
            for protocol in accepted:
                await protocol.until_called("connection_lost")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@without_debug("takes a second")
async def test_running_out_of_descriptors(loop, unhandled):
    """Reported, no busy loop, the others are served, and accepting goes on afterwards."""
    async with serving(loop) as server:
        where = address(server)
        first = socket.create_connection(where)
        assert await ask(first) == b"hello"
        late = [socket.socket() for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        hogs = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 3,
                                                    hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    hogs.append(os.dup(2))
            for sock in late:
                sock.connect(where)
            assert await is_idle(loop, 0.4)
            assert await ask(first, b"still served") == b"still served"
        finally:
            for fd in hogs:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        contexts = unhandled.take()
        assert contexts
        assert contexts[0]["exception"].errno == errno.EMFILE
        assert "accept" in contexts[0]["message"]
        assert contexts[0]["socket"].fileno() == server.sockets[0].fileno()
        for sock in late:
            assert await ask(sock) == b"hello"
        for sock in (first, *late):
            sock.close()
    unhandled.take()


@differs_from_asyncio("its retry runs into the closed listener")
@without_debug("takes a second")
async def test_closing_while_out_of_descriptors(loop, unhandled):
    """The retry that is due later must not touch a closed listener."""
    async with serving(loop) as server:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        sock = socket.socket()
        hogs = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 3,
                                                    hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    hogs.append(os.dup(2))
            sock.connect(address(server))
            await until(lambda: len(unhandled))
            server.close()
        finally:
            for fd in hogs:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        unhandled.take()
        await asyncio.sleep(1.2)
        sock.close()


@without_debug("hundreds of connections")
async def test_more_connections_than_the_backlog(loop):
    async with serving(loop, backlog=1) as server:
        where = address(server)

        def many():
            for _ in range(100):
                with socket.create_connection(where, timeout=10) as sock:
                    sock.sendall(b"x")
                    assert sock.recv(1) == b"x"

        await soon(loop.run_in_executor(None, many))


async def test_server_is_freed(loop):
    server = await loop.create_server(Echo, LOOPBACK, 0)
    ref = weakref.ref(server)
    with socket.create_connection(address(server)) as sock:
        assert await ask(sock) == b"hello"
    await quiet()
    server.close()
    await server.wait_closed()
    await turns()
    del server
    gc.collect()
    assert ref() is None


async def test_repr(loop):
    async with serving(loop) as server:
        assert "Server" in repr(server)
        assert "sockets=" in repr(server)


def test_closing_the_loop_before_the_server(loop_factory):
    loop = loop_factory()
    server = loop.run_until_complete(loop.create_server(Echo, LOOPBACK, 0))
    server.close()
    loop.run_until_complete(server.wait_closed())
    loop.close()


async def test_accepted_connection_never_blocks(loop):
    accepted = []
    async with serving(loop, lambda: Accepted(accepted)) as server:
        with socket.create_connection(address(server)):
            await until(lambda: accepted and accepted[0].transport)
            sock = accepted[0].transport.get_extra_info("socket")
            assert sock.gettimeout() == 0
            assert not os.get_blocking(sock.fileno())
            assert not os.get_inheritable(sock.fileno())
        await accepted[0].until_lost()

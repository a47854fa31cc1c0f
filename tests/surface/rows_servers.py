"""create_server and connect_accepted_socket."""
import asyncio
import contextlib
import contextvars
import os
import resource
import socket
import time

from support.net import LOOPBACK, Peer, has_ipv6, tcp_pair, unused_port
from support.protocols import Recorder
from support.waiting import turns

from surface.checks import equal, raises, refused
from surface.ends import dial, gone, port_of, serving
from surface.rows import Unavailable, subject

row = subject("TCP servers")
# struct tcp_info of a listening socket: the longest its queue may get. See tcp(7).
TCPI_SACKED = slice(28, 32)


def option(sock, name):
    return bool(sock.getsockopt(socket.SOL_SOCKET, name))


@row("create_server(protocol_factory=, host=, port=)")
async def host_and_port(loop):
    port = unused_port()
    async with serving(loop, host="127.0.0.2", port=port) as (server, clients):
        equal(server.sockets[0].getsockname(), ("127.0.0.2", port))
        with dial(server) as sock:
            sock.sendall(b"hello")
            client = await clients.accepted()
            equal(await client.until_received(5), b"hello")
            equal(client.transport.get_extra_info("peername"), sock.getsockname())
        await client.until_lost()


@row("create_server(host=[several])")
async def hosts(loop):
    async with serving(loop, host=[LOOPBACK, "127.0.0.2"]) as (server, clients):
        equal({sock.getsockname()[0] for sock in server.sockets}, {LOOPBACK, "127.0.0.2"})
        for sock in server.sockets:
            socket.create_connection(sock.getsockname()).close()
        await clients.accepted(2)


@row("create_server(host=None) listens on all interfaces")
async def all_interfaces(loop):
    async with serving(loop, host=None) as (server, clients):
        addresses = {sock.getsockname()[0] for sock in server.sockets}
        assert "0.0.0.0" in addresses, addresses
        four, = (sock for sock in server.sockets if sock.family == socket.AF_INET)
        socket.create_connection(("127.0.0.3", four.getsockname()[1])).close()
        await clients.accepted()


@row("create_server(family=)")
async def family(loop):
    if not has_ipv6():
        raise Unavailable("no IPv6")
    for wanted in (socket.AF_INET, socket.AF_INET6):
        async with serving(loop, host=None, family=wanted) as (server, _):
            equal([sock.family for sock in server.sockets], [wanted])


@row("create_server(flags=)")
async def flags(loop):
    await refused(loop.create_server(
        Recorder, "localhost", 0, flags=socket.AI_NUMERICHOST), socket.gaierror)
    async with serving(loop, host=None, flags=0, family=socket.AF_INET) as (server, _):
        equal(server.sockets[0].getsockname()[0], LOOPBACK, "not passive")


@row("create_server(sock=)")
async def sock(loop):
    sock = socket.socket()
    sock.bind((LOOPBACK, 0))
    async with serving(loop, host=None, port=None, sock=sock) as (server, clients):
        equal(server.sockets[0].fileno(), sock.fileno())
        dial(server).close()
        await clients.accepted()
    equal(sock.fileno(), -1)


@row("create_server(sock=) with an address is a ValueError")
async def sock_and_address(loop):
    with socket.socket() as sock, raises(ValueError):
        await loop.create_server(Recorder, LOOPBACK, 0, sock=sock)
    with raises(ValueError):
        await loop.create_server(Recorder)


@row("create_server(backlog=)")
async def backlog(loop):
    async with serving(loop, backlog=7) as (server, _):
        info = server.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        equal(int.from_bytes(info[TCPI_SACKED], "little"), 7)


@row("create_server(reuse_address=)")
async def reuse_address(loop):
    for wanted in (None, True, False):
        async with serving(loop, reuse_address=wanted) as (server, _):
            equal(option(server.sockets[0], socket.SO_REUSEADDR), wanted in (None, True), wanted)


@row("create_server(reuse_port=)")
async def reuse_port(loop):
    async with serving(loop, reuse_port=True) as (server, _):
        equal(option(server.sockets[0], socket.SO_REUSEPORT), True)
        async with serving(loop, port=port_of(server), reuse_port=True) as (second, _):
            equal(port_of(second), port_of(server))
        await refused(loop.create_server(Recorder, LOOPBACK, port_of(server)), OSError)


@row("create_server(keep_alive=)")
async def keep_alive(loop):
    for wanted in (True, False):
        async with serving(loop, keep_alive=wanted) as (server, clients):
            with dial(server):
                client = await clients.accepted()
                found = option(client.transport.get_extra_info("socket"), socket.SO_KEEPALIVE)
                equal(found, wanted)


@row("create_server(start_serving=False)")
async def start_serving(loop):
    async with serving(loop, start_serving=False) as (server, clients):
        equal(server.is_serving(), False)
        with raises(ConnectionRefusedError):
            dial(server)
        await server.start_serving()
        equal(server.is_serving(), True)
        dial(server).close()
        await clients.accepted()


@row("a port in use is an OSError")
async def in_use(loop):
    async with serving(loop) as (server, _):
        await refused(loop.create_server(Recorder, LOOPBACK, port_of(server)), OSError)


@row("protocols of one server do not share a context")
async def contexts(loop):
    variable = contextvars.ContextVar("variable", default=None)
    seen = []

    class Notes(Recorder):
        def connection_made(self, transport):
            seen.append(variable.get())
            variable.set("of the other")
            super().connection_made(transport)

    async with serving(loop, Notes) as (server, clients):
        with dial(server), dial(server):
            await clients.accepted(2)
    equal(seen, [None, None])


@row("a failing protocol factory is reported, and the server goes on")
async def failing_factory(loop):
    reports, clients = [], []

    def factory():
        if not clients:
            clients.append(None)
            raise LookupError("mine")
        clients.append(Recorder())
        return clients[-1]

    loop.set_exception_handler(lambda loop, context: reports.append(context))
    server = await loop.create_server(factory, LOOPBACK, 0)
    try:
        with dial(server), dial(server) as sock:
            sock.send(b"x")
            async with asyncio.timeout(2):
                while len(clients) < 2:
                    await asyncio.sleep(0.001)
            equal(await clients[1].until_received(1), b"x")
        await clients[1].until_lost()
    finally:
        server.close()
        await turns(4)
    equal([type(context.get("exception")) for context in reports], [LookupError])


@contextlib.contextmanager
def without_descriptors(left):
    """Let the process have only `left` more descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + left, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@row("out of descriptors: no spinning, and nobody is turned away")
async def out_of_descriptors(loop):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    socks = [socket.socket() for _ in range(3)]
    async with serving(loop) as (server, clients):
        with without_descriptors(0):
            for sock in socks:
                sock.connect(server.sockets[0].getsockname())
            began = time.process_time()
            await asyncio.sleep(0.2)
            took = time.process_time() - began
        assert took < 0.1, f"{took:.2f} s of processor time in 0.2 s"
        await clients.accepted(3)
        for sock in socks:
            sock.send(b"x")
        for client in clients.protocols:
            equal(await client.until_received(1), b"x")
        for sock in socks:
            sock.close()


@row("connect_accepted_socket(protocol_factory=, sock=)")
async def connect_accepted_socket(loop):
    near, far = tcp_pair()
    peer = Peer(far)
    transport, protocol = await loop.connect_accepted_socket(Recorder, near)
    try:
        transport.write(b"hello")
        equal(await peer.recv_exactly(5), b"hello")
        await peer.send(b"there")
        equal(await protocol.until_received(5), b"there")
        equal(protocol.names[0], "connection_made")
    finally:
        await gone(transport, protocol)
        peer.close()


@row("accepted sockets do not block, and are not inherited")
async def accepted(loop):
    async with serving(loop) as (server, clients):
        with dial(server):
            client = await clients.accepted()
            fd = client.transport.get_extra_info("socket").fileno()
            equal((os.get_blocking(fd), os.get_inheritable(fd)), (False, False))

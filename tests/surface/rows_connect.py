"""create_connection."""
import asyncio
import socket
import threading

from support.net import LOOPBACK, has_ipv6, tcp_pair, unused_port
from support.protocols import Recorder
from support.waiting import quiet, soon, turns

from surface.checks import descriptors, equal, raises, refused, within
from surface.ends import gone, listener, port_of, serving, silent_address
from surface.rows import Unavailable, subject

row = subject("TCP connections")
STREAM = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")


async def connect(loop, *args, **options):
    """Connect, end the connection, and give its extra info."""
    transport, protocol = await soon(loop.create_connection(Recorder, *args, **options))
    found = {name: transport.get_extra_info(name) for name in ("peername", "sockname", "socket")}
    await gone(transport, protocol)
    return found


def resolve_to(loop, *addresses):
    """Let the loop find these addresses for any name."""
    async def getaddrinfo(host, port, **options):
        return [(socket.AF_INET6 if len(address) == 4 else socket.AF_INET, *STREAM, address)
                for address in addresses]

    loop.getaddrinfo = getaddrinfo


@row("create_connection(protocol_factory=, host=, port=)")
async def host_and_port(loop):
    async with serving(loop, host="127.0.0.2") as (server, clients):
        transport, protocol = await loop.create_connection(Recorder, "127.0.0.2", port_of(server))
        equal(transport.get_extra_info("peername"), ("127.0.0.2", port_of(server)))
        equal(protocol.names, ["connection_made"])
        transport.write(b"hello")
        transport.close()
        equal(await protocol.until_lost(), None)
        last = await clients.accepted()
        equal(await last.until_received(5), b"hello")
        equal(await last.until_lost(), None)


@row("create_connection() by name, and with a port as text")
async def by_name(loop):
    async with serving(loop) as (server, _):
        for port in (port_of(server), str(port_of(server))):
            found = await connect(loop, "localhost", port)
            equal(found["peername"], (LOOPBACK, port_of(server)))


@row("create_connection(family=)")
async def family(loop):
    if not has_ipv6():
        raise Unavailable("no IPv6")
    async with serving(loop, host="::1") as (server, _):
        found = await connect(loop, "::1", port_of(server), family=socket.AF_INET6)
        equal(found["peername"][0], "::1")
        await refused(loop.create_connection(
            Recorder, "::1", port_of(server), family=socket.AF_INET), OSError)


@row("create_connection(proto=)")
async def proto(loop):
    async with serving(loop) as (server, _):
        await connect(loop, LOOPBACK, port_of(server), proto=socket.IPPROTO_TCP)
        await refused(loop.create_connection(
            Recorder, LOOPBACK, port_of(server), proto=socket.IPPROTO_SCTP), OSError)


@row("create_connection(flags=)")
async def flags(loop):
    async with serving(loop) as (server, _):
        await refused(loop.create_connection(
            Recorder, "localhost", port_of(server), flags=socket.AI_NUMERICHOST), socket.gaierror)
        await connect(loop, LOOPBACK, port_of(server), flags=socket.AI_NUMERICHOST)


@row("create_connection(sock=)")
async def sock(loop):
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    equal(transport.get_extra_info("socket").fileno(), near.fileno())
    far.send(b"x")
    equal(await protocol.until_received(1), b"x")
    await gone(transport, protocol)
    equal(near.fileno(), -1)
    far.close()


@row("create_connection(sock=) with an address is a ValueError")
async def sock_and_address(loop):
    with socket.socket() as sock, raises(ValueError):
        await loop.create_connection(Recorder, LOOPBACK, 80, sock=sock)
    with raises(ValueError):
        await loop.create_connection(Recorder)


@row("create_connection(local_addr=)")
async def local_addr(loop):
    port = unused_port()
    async with serving(loop) as (server, _):
        found = await connect(
            loop, LOOPBACK, port_of(server), local_addr=("127.0.0.2", port))
        equal(found["sockname"], ("127.0.0.2", port))


@row("create_connection(host=None) tries both loopback addresses")
async def next_address(loop):
    async with serving(loop) as (server, _):
        found = await connect(loop, None, port_of(server))
        equal(found["peername"], (LOOPBACK, port_of(server)))


@row("create_connection(happy_eyeballs_delay=)")
async def happy_eyeballs(loop):
    async with serving(loop) as (server, _):
        with silent_address() as silent, within(1):
            resolve_to(loop, silent, (LOOPBACK, port_of(server)))
            found = await connect(
                loop, "two.test", port_of(server), happy_eyeballs_delay=0.05)
        equal(found["peername"], (LOOPBACK, port_of(server)))


@row("create_connection(interleave=)")
async def interleave(loop):
    if not has_ipv6():
        raise Unavailable("no IPv6")
    refusing = (LOOPBACK, unused_port())
    with listener("127.0.0.2") as second, listener("::1", socket.AF_INET6) as other:
        six = other.getsockname()
        resolve_to(loop, refusing, second.getsockname(), six)
        found = await connect(loop, "three.test", 1, interleave=1)
        equal(found["peername"][:2], six[:2])
        equal((await connect(loop, "three.test", 1))["peername"], second.getsockname())


@row("create_connection(all_errors=)")
async def all_errors(loop):
    resolve_to(loop, (LOOPBACK, unused_port()), ("127.0.0.2", unused_port()))
    failed = await refused(
        loop.create_connection(Recorder, "two.test", 80, all_errors=True), ExceptionGroup)
    equal([type(exc) for exc in failed.exceptions], [ConnectionRefusedError] * 2)
    await refused(loop.create_connection(Recorder, "two.test", 80), OSError)


@row("a refused connection is a ConnectionRefusedError")
async def refusal(loop):
    await refused(loop.create_connection(Recorder, LOOPBACK, unused_port()),
                  ConnectionRefusedError)


async def cancelled_connect(loop, address):
    task = loop.create_task(loop.create_connection(Recorder, *address))
    await asyncio.sleep(0.02)
    task.cancel()
    await refused(task, asyncio.CancelledError)
    await quiet()


@row("a cancelled connect leaves no descriptor behind")
async def cancelled(loop):
    with silent_address() as silent:
        await cancelled_connect(loop, silent)       # what is there from now on is no leak
        before = descriptors()
        await cancelled_connect(loop, silent)
        equal(descriptors(), before)


@row("a failing protocol factory leaves no descriptor behind")
async def failing_factory(loop):
    def factory():
        raise LookupError("mine")

    async with serving(loop) as (server, clients):
        before = descriptors()
        await refused(loop.create_connection(factory, LOOPBACK, port_of(server)), LookupError)
        last = await clients.accepted()
        await last.until_lost()
        await turns(4)
        equal(descriptors(), before)


@row("TCP_NODELAY is set on both ends")
async def nodelay(loop):
    async with serving(loop) as (server, clients):
        transport, protocol = await loop.create_connection(Recorder, LOOPBACK, port_of(server))
        far = await clients.accepted()
        for end in (transport, far.transport):
            value = end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP,
                                                           socket.TCP_NODELAY)
            assert value, "not set"
        await gone(transport, protocol)


@row("connecting to an address needs no thread")
async def no_thread(loop):
    async with serving(loop) as (server, _):
        await connect(loop, LOOPBACK, port_of(server))
        equal(threading.active_count(), 1, "threads")


@row("300 connections at once")
async def many(loop):
    async with serving(loop, backlog=512) as (server, clients):
        made = await soon(asyncio.gather(*(
            loop.create_connection(Recorder, LOOPBACK, port_of(server)) for _ in range(300))))
        await clients.accepted(300)
        for number, (transport, _) in enumerate(made):
            transport.write(b"%d" % number)
            transport.close()
        for protocol in clients.protocols:
            await protocol.until_lost()
        equal(sorted(int(protocol.received) for protocol in clients.protocols),
              list(range(300)))
        for transport, protocol in made:
            await gone(transport, protocol)

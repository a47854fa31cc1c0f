"""Datagram transports."""
import asyncio
import contextvars
import socket

from support.datagrams import Datagrams, endpoint, take, unused_address
from support.net import LOOPBACK, Peer
from support.waiting import quiet, turns

from surface.checks import equal, kind_of, raises
from surface.rows import subject

row = subject("Datagram transports")
variable = contextvars.ContextVar("variable", default="unset")


class ends:
    """An endpoint, its protocol, and a plain socket; connected to each other if wanted."""

    def __init__(self, loop, connected=True, factory=Datagrams, **options):
        self.loop, self.connected, self.factory = loop, connected, factory
        self.options = options

    async def __aenter__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((LOOPBACK, 0))
        if self.connected:
            self.options["remote_addr"] = self.sock.getsockname()
        else:
            self.options["local_addr"] = (LOOPBACK, 0)
        self.made = endpoint(self.loop, factory=self.factory, **self.options)
        transport, protocol = await self.made.__aenter__()
        if self.connected:
            self.sock.connect(transport.get_extra_info("sockname"))
        return transport, protocol, Peer(self.sock)

    async def __aexit__(self, *exc_info):
        self.sock.close()
        try:
            return await self.made.__aexit__(*exc_info)
        finally:
            await turns(4)


@row("is an asyncio.DatagramTransport")
async def transport_class(loop):
    async with ends(loop) as (transport, _, _):
        kind_of(transport, asyncio.DatagramTransport)


@row("sendto(data=), datagram_received(): connected")
async def connected(loop):
    async with ends(loop) as (transport, protocol, peer):
        for data in (b"one", bytearray(b"two"), memoryview(b"three")):
            transport.sendto(data)
        equal(await take(peer, 3), [b"one", b"two", b"three"])
        await peer.send(b"back")
        await protocol.until_called("datagram_received")
        equal(protocol.datagrams, [b"back"])
        equal(protocol.senders, [peer.sock.getsockname()])


@row("sendto(addr=)")
async def with_address(loop):
    async with ends(loop, connected=False) as (transport, protocol, peer):
        transport.sendto(b"there", peer.sock.getsockname())
        equal(await peer.recv(), b"there")
        peer.sock.sendto(b"back", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")
        equal((protocol.datagrams, protocol.senders), ([b"back"], [peer.sock.getsockname()]))


@row("sendto() to another address than the connected one is a ValueError")
async def other_address(loop):
    async with ends(loop) as (transport, _, peer):
        with raises(ValueError):
            transport.sendto(b"x", unused_address())
        transport.sendto(b"y", peer.sock.getsockname())
        equal(await peer.recv(), b"y")


@row("sendto() of what is not bytes-like is a TypeError")
async def wrong_type(loop):
    async with ends(loop) as (transport, _, _):
        for data in ("text", None, 3):
            with raises(TypeError):
                transport.sendto(data)


@row("empty datagrams")
async def empty(loop):
    async with ends(loop) as (transport, protocol, peer):
        transport.sendto(b"")
        equal(await peer.recv(), b"")
        peer.sock.send(b"")
        await protocol.until_called("datagram_received")
        equal(protocol.datagrams, [b""])
        equal(transport.is_closing(), False)


@row("datagrams of 60 kB")
async def large(loop):
    async with ends(loop) as (transport, protocol, peer):
        transport.sendto(b"x" * 60_000)
        equal(len(await peer.recv()), 60_000)
        await peer.send(b"y" * 60_000)
        await protocol.until_called("datagram_received")
        equal(len(protocol.datagrams[0]), 60_000)


@row("error_received() when nobody listens")
async def error_received(loop):
    async with endpoint(loop, remote_addr=unused_address()) as (transport, protocol):
        transport.sendto(b"x")
        _, exc = await protocol.until_called("error_received")
        kind_of(exc, ConnectionRefusedError)
        equal(transport.is_closing(), False)
    await turns(4)


@row("close(), is_closing(), connection_lost(None)")
async def close(loop):
    async with ends(loop) as (transport, protocol, _):
        equal(transport.is_closing(), False)
        transport.close()
        equal(transport.is_closing(), True)
        equal(await protocol.until_lost(), None)


@row("abort()")
async def abort(loop):
    async with ends(loop) as (transport, protocol, _):
        transport.abort()
        equal(transport.is_closing(), True)
        equal(await protocol.until_lost(), None)


@row("get_extra_info(name=, default=): socket, sockname, peername")
async def extra_info(loop):
    async with ends(loop) as (transport, _, peer):
        equal(transport.get_extra_info("peername"), peer.sock.getsockname())
        equal(transport.get_extra_info("sockname"), peer.sock.getpeername())
        equal(transport.get_extra_info("socket").type, socket.SOCK_DGRAM)
        equal(transport.get_extra_info("no such thing", 3), 3)


@row("set_protocol(protocol=), get_protocol()")
async def set_protocol(loop):
    async with ends(loop) as (transport, first, peer):
        assert transport.get_protocol() is first, "another protocol"
        second = Datagrams()
        transport.set_protocol(second)
        assert transport.get_protocol() is second, "not the new protocol"
        await peer.send(b"x")
        await second.until_called("datagram_received")
        equal((first.datagrams, second.datagrams), ([], [b"x"]))
        transport.set_protocol(first)


@row("get_write_buffer_limits(), set_write_buffer_limits(high=, low=)")
async def limits(loop):
    async with ends(loop) as (transport, _, _):
        equal(transport.get_write_buffer_limits(), (16 * 1024, 64 * 1024))
        transport.set_write_buffer_limits(high=400, low=100)
        equal(transport.get_write_buffer_limits(), (100, 400))


def blocked(folder):
    """A unix datagram socket whose peer does not read, and the peer."""
    near, far = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    for sock, name in ((near, "near"), (far, "far")):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        sock.bind(str(folder / name))
    near.connect(far.getsockname())
    return near, far


@row("get_write_buffer_size(), pause_writing(), resume_writing()")
async def flow_control(loop, folder):
    near, far = blocked(folder)
    async with endpoint(loop, near) as (transport, protocol):
        equal(transport.get_write_buffer_size(), 0)
        sent = 0
        while not protocol.count("pause_writing"):
            transport.sendto(b"x" * 1000)
            sent += 1
            assert sent < 1000, "never paused"
        assert transport.get_write_buffer_size() > 64 * 1024, transport.get_write_buffer_size()
        equal(await take(Peer(far), sent), [b"x" * 1000] * sent)
        await protocol.until_called("resume_writing")
        equal(transport.get_write_buffer_size(), 0)
    far.close()
    await turns(4)


@row("close() sends what is queued")
async def close_flushes(loop, folder):
    near, far = blocked(folder)
    async with endpoint(loop, near) as (transport, protocol):
        sent = 0
        while not transport.get_write_buffer_size():
            transport.sendto(b"%d" % sent)
            sent += 1
            assert sent < 1000, "nothing is queued"
        transport.close()
        equal(await take(Peer(far), sent), [b"%d" % number for number in range(sent)])
        await protocol.until_lost()
    far.close()
    await turns(4)


@row("a bytearray changed after sendto() was sent as it was")
async def snapshot(loop, folder):
    near, far = blocked(folder)
    async with endpoint(loop, near) as (transport, _):
        sent, data = 0, bytearray(b"before")
        while not transport.get_write_buffer_size():
            transport.sendto(data)
            sent += 1
            assert sent < 1000, "nothing is queued"
        data[:] = b"later."
        equal(await take(Peer(far), sent), [b"before"] * sent)
    far.close()
    await turns(4)


@row("callbacks run in the creator's context")
async def context(loop):
    class Notes(Datagrams):
        def note(self, name, *args):
            super().note(name, variable.get(), *args)

    variable.set("creator's")
    async with ends(loop, factory=Notes) as (transport, protocol, peer):
        variable.set("another's")
        await peer.send(b"x")
        await protocol.until_called("datagram_received")
        transport.close()
        await protocol.until_called("connection_lost")
        equal({call[1] for call in protocol.calls}, {"creator's"})


@row("500 datagrams at once")
async def burst(loop):
    async with ends(loop) as (transport, protocol, peer):
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        for number in range(500):
            peer.sock.send(b"%d" % number)
        await protocol.until_called("datagram_received", 500)
        equal(protocol.datagrams, [b"%d" % number for number in range(500)])


@row("an exception in datagram_received() is reported")
async def raising(loop):
    class Raises(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            raise LookupError("mine")

    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    async with ends(loop, factory=Raises) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_called("datagram_received")
        await quiet()
        equal([type(context.get("exception")) for context in reports], [LookupError])

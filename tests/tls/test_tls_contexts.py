"""One connection, one context, over TLS as without it."""
import contextvars
import socket

import pytest
from support.loops import differs_from_asyncio
from support.net import BIG, LOOPBACK, attach, tcp_pair
from support.protocols import Recorder
from support.tls import TLSPeer, client_context, server_context
from support.waiting import quiet, turns, until

pytestmark = pytest.mark.needs("tls")
var = contextvars.ContextVar("var", default="unset")
foreign = differs_from_asyncio(
    "callbacks run in the context of whoever wrote, resumed or closed last"
)


class Seeing(Recorder):
    """Notes what each callback sees, and changes it in connection_made."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def note(self, name, *args):
        super().note(name, *args)
        self.seen[name] = var.get()
        if name == "connection_made":
            var.set("connection")


def fill(transport):
    """Write until flow control speaks: what comes first goes to the connection below."""
    transport.write(b"x" * BIG)
    transport.write(b"x" * BIG)


def elsewhere(function, *args):
    """Call it in a context of its own."""
    context = contextvars.copy_context()
    context.run(var.set, "elsewhere")
    return context.run(function, *args)


class Connection:
    """A TLS client's transport and protocol, and the far end, which no loop watches."""

    def __init__(self, loop, factory=Seeing):
        self.loop, self.factory = loop, factory

    async def __aenter__(self):
        near, far = tcp_pair()
        self.peer = TLSPeer(far, server_context(), server_side=True)
        handshake = self.loop.create_task(self.peer.handshake())
        self.transport, self.protocol = await self.loop.create_connection(
            self.factory, sock=near, ssl=client_context(), server_hostname="localhost")
        await handshake
        return self.transport, self.protocol, self.peer

    async def __aexit__(self, *exc_info):
        self.transport.abort()
        self.peer.close()
        await self.protocol.until_lost()
        await quiet()


@foreign
async def test_what_connection_made_sets_is_seen_by_the_others(loop):
    var.set("creator")
    async with Connection(loop) as (_, protocol, peer):
        assert protocol.seen["connection_made"] == "creator"
        await peer.send(b"x")
        await protocol.until_received(1)
        assert protocol.seen["data_received"] == "connection"
    assert protocol.seen["connection_lost"] == "connection"
    assert var.get() == "creator"


@foreign
async def test_resume_reading_from_elsewhere(loop):
    async with Connection(loop) as (transport, protocol, peer):
        elsewhere(transport.pause_reading)
        await peer.send(b"x")
        await turns()
        elsewhere(transport.resume_reading)
        await protocol.until_received(1)
        assert protocol.seen["data_received"] == "connection"


@foreign
async def test_flow_control_after_writing_from_elsewhere(loop):
    async with Connection(loop) as (transport, protocol, peer):
        elsewhere(fill, transport)
        assert protocol.seen["pause_writing"] == "connection"
        received = 0
        while received < 2 * BIG:
            received += len(await peer.recv())
        await protocol.until_called("resume_writing")
        assert protocol.seen["resume_writing"] == "connection"


async def test_writing_from_a_callback_of_the_protocol(loop):
    """The context is entered already then, and cannot be entered twice."""
    class Answers(Seeing):
        def data_received(self, data):
            super().data_received(data)
            fill(self.transport)
            self.transport.close()

    async with Connection(loop, Answers) as (_, protocol, peer):
        await peer.send(b"x")
        received = 0
        while received < 2 * BIG:
            received += len(await peer.recv())
        assert protocol.count("pause_writing") == 1


@foreign
@pytest.mark.parametrize("method", ["close", "abort"])
async def test_closing_from_elsewhere(loop, method):
    async with Connection(loop) as (transport, protocol, peer):
        elsewhere(getattr(transport, method))
        if method == "close":
            await peer.unwrap()
        await protocol.until_lost()
        assert protocol.seen["connection_lost"] == "connection"


async def test_accepted_connection_starts_with_what_the_server_was_made_in(loop):
    accepted = []

    class Accepted(Seeing):
        def __init__(self):
            super().__init__()
            self.seen["factory"] = var.get()
            accepted.append(self)

    token = var.set("server")
    server = await loop.create_server(Accepted, LOOPBACK, 0, ssl=server_context())
    var.reset(token)
    transport, protocol = await loop.create_connection(
        Recorder, "localhost", server.sockets[0].getsockname()[1], family=socket.AF_INET,
        ssl=client_context())
    await until(lambda: accepted and accepted[0].count("connection_made"))
    assert accepted[0].seen == {"factory": "server", "connection_made": "server"}
    transport.close()
    await protocol.until_lost()
    await accepted[0].until_lost()
    server.close()
    await server.wait_closed()
    await quiet()


@foreign
async def test_upgraded_connection(loop):
    var.set("creator")
    near, far = tcp_pair()
    plain, protocol = await attach(loop, near, Seeing)
    peer = TLSPeer(far, server_context(), server_side=True)
    handshake = loop.create_task(peer.handshake())
    transport = await loop.start_tls(
        plain, protocol, client_context(), server_hostname="localhost")
    await handshake
    elsewhere(fill, transport)
    assert protocol.seen["pause_writing"] == "connection"
    await peer.send(b"x")
    await protocol.until_received(1)
    assert protocol.seen["data_received"] == "connection"
    transport.abort()
    peer.close()
    await protocol.until_lost()
    assert protocol.seen["connection_lost"] == "connection"
    await quiet()

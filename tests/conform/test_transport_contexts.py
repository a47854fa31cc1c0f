"""One connection, one context: every callback of a protocol runs in the same one."""
import contextvars

import pytest
from support.loops import differs_from_asyncio
from support.net import BIG, LOOPBACK, Peer, attach, connected, socket_pair
from support.protocols import BufferedRecorder, Recorder
from support.waiting import turns, until

var = contextvars.ContextVar("var", default="unset")
foreign = differs_from_asyncio(
    "callbacks run in the context of whoever paused, resumed or closed last"
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


class SeeingBuffered(Seeing, BufferedRecorder):
    def __init__(self):
        super().__init__()
        self.buffer = bytearray(1000)
        self.hints = []


def elsewhere(function, *args):
    """Call it in a context of its own."""
    context = contextvars.copy_context()
    context.run(var.set, "elsewhere")
    return context.run(function, *args)


async def test_data_received_and_the_end(loop, kind):
    var.set("creator")
    async with connected(loop, kind, Seeing) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_received(1)
        peer.close()
        await protocol.until_lost()
        assert protocol.seen["connection_made"] == "creator"
        assert var.get() == "creator"


@foreign
async def test_what_connection_made_sets_is_seen_by_the_others(loop, kind):
    var.set("creator")
    async with connected(loop, kind, Seeing) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_received(1)
        peer.close()
        await protocol.until_lost()
        assert protocol.seen["data_received"] == "connection"
        assert protocol.seen["eof_received"] == "connection"
        assert protocol.seen["connection_lost"] == "connection"
    assert var.get() == "creator"


@foreign
async def test_buffered_protocol(loop, kind):
    var.set("creator")
    async with connected(loop, kind, SeeingBuffered) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_received(1)
        assert protocol.seen["buffer_updated"] == "connection"


@foreign
async def test_pause_and_resume_reading_from_elsewhere(loop, kind):
    async with connected(loop, kind, Seeing) as (transport, protocol, peer):
        elsewhere(transport.pause_reading)
        await peer.send(b"x")
        await turns()
        elsewhere(transport.resume_reading)
        await protocol.until_received(1)
        assert protocol.seen["data_received"] == "connection"


@foreign
@pytest.mark.parametrize("method", ["close", "abort"])
async def test_closing_from_elsewhere(loop, kind, method):
    async with connected(loop, kind, Seeing) as (transport, protocol, _):
        elsewhere(getattr(transport, method))
        await protocol.until_lost()
        assert protocol.seen["connection_lost"] == "connection"


@foreign
async def test_flow_control_after_writing_from_elsewhere(loop, kind):
    async with connected(loop, kind, Seeing) as (transport, protocol, peer):
        elsewhere(transport.write, b"x" * BIG)
        await peer.recv_exactly(BIG)
        await protocol.until_called("resume_writing")
        assert protocol.seen["resume_writing"] == "connection"


async def test_two_connections_do_not_share_a_context(loop, kind):
    class Sets(Seeing):
        def data_received(self, data):
            super().data_received(data)
            var.set(data)

    ends = []
    for _ in range(2):
        near, far = socket_pair(kind)
        transport, protocol = await attach(loop, near, Sets)
        ends.append((transport, protocol, Peer(far)))
    for number, (_, protocol, peer) in enumerate(ends):
        await peer.send(b"%d" % number)
        await protocol.until_received(1)
    for _, protocol, peer in ends:
        await peer.send(b"x")
        await protocol.until_received(2)
        peer.close()
        await protocol.until_lost()
    assert var.get() == "unset"


@foreign
async def test_accepted_connections_do_not_share_a_context(loop):
    accepted = []

    class Sets(Seeing):
        def connection_made(self, transport):
            super().connection_made(transport)
            accepted.append(self)

    var.set("server")
    server = await loop.create_server(Sets, LOOPBACK, 0)
    clients = []
    for _ in range(3):
        transport, _ = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        clients.append(transport)
    await until(lambda: len(accepted) == 3)
    assert [protocol.seen["connection_made"] for protocol in accepted] == ["server"] * 3
    for transport in clients:
        transport.close()
    for protocol in accepted:
        await protocol.until_lost()
        assert protocol.seen["connection_lost"] == "connection"
    server.close()
    await server.wait_closed()

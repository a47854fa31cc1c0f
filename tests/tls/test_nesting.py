"""TLS over whatever there is: TLS, unix sockets, transports of somebody else."""
import asyncio

import pytest
from support.loops import without_debug
from support.net import BIG, socket_pair, tcp_pair
from support.protocols import Recorder, ViewRecorder
from support.tls import client_context, server_context
from support.waiting import soon, turns

pytestmark = without_debug("the layers are the same")


async def both_ends(loop, kind, factory=Recorder):
    """Plain transports on both ends of a connection, with their protocols."""
    ends = []
    for sock in socket_pair(kind):
        sock.setblocking(False)
        protocol = factory()
        make = loop.create_unix_connection if kind == "unix" else loop.create_connection
        transport, _ = await make(lambda protocol=protocol: protocol, sock=sock)
        ends.append([transport, protocol])
    return ends


async def upgrade(loop, ends):
    """One more layer of TLS on both ends."""
    (client, ours), (server, theirs) = ends
    return [
        [transport, protocol] for transport, protocol in zip(
            await soon(asyncio.gather(
                loop.start_tls(client, ours, client_context(), server_hostname="localhost"),
                loop.start_tls(server, theirs, server_context(), server_side=True))),
            (ours, theirs), strict=True)
    ]


async def exchange(ends, data):
    for (sender, _), (_, receiver) in (ends, ends[::-1]):
        before = len(receiver.received)
        sender.write(data)
        got = await receiver.until_received(before + len(data))
        assert got[before:] == data


@pytest.mark.parametrize("factory", [Recorder, ViewRecorder], ids=["protocol", "buffered"])
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_layers(loop, kind, depth, factory):
    ends = await both_ends(loop, kind, factory)
    for _ in range(depth):
        ends = await upgrade(loop, ends)
        await exchange(ends, b"hello")
    await exchange(ends, bytes(range(256)) * 2000)
    ends[0][0].close()
    assert await ends[1][1].until_lost() is None
    assert await ends[0][1].until_lost() is None
    await turns()


async def test_back_pressure_reaches_through_the_layers(loop):
    ends = await both_ends(loop, "tcp")
    ends = await upgrade(loop, await upgrade(loop, ends))
    (sender, writing), (receiver, reading) = ends
    receiver.pause_reading()
    written = 0
    while not writing.count("pause_writing"):
        sender.write(b"x" * BIG)
        written += BIG
        assert written < 64 << 20
        await turns(2)
    assert sender.get_write_buffer_size() > 0
    receiver.resume_reading()
    await writing.until_called("resume_writing")
    await reading.until_received(written)
    sender.abort()
    await reading.until_lost()
    await writing.until_lost()
    await turns()


class Foreign(asyncio.Transport):
    """A transport that is not the loop's: joined to another of its kind by call_soon()."""

    _start_tls_compatible = True

    def __init__(self, loop, protocol):
        super().__init__()
        self.loop, self.protocol, self.other, self.closing = loop, protocol, None, False

    def write(self, data):
        self.loop.call_soon(self.other.deliver, bytes(data))

    def deliver(self, data):
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            while data:
                buffer = self.protocol.get_buffer(len(data))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                self.protocol.buffer_updated(size)
                data = data[size:]
        else:
            self.protocol.data_received(data)

    def set_protocol(self, protocol):
        self.protocol = protocol

    def get_protocol(self):
        return self.protocol

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def is_closing(self):
        return self.closing

    def close(self):
        if not self.closing:
            self.closing = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def _force_close(self, exc):
        self.close()


async def test_transport_of_somebody_else(loop):
    ends = [[Foreign(loop, protocol), protocol] for protocol in (Recorder(), Recorder())]
    ends[0][0].other, ends[1][0].other = ends[1][0], ends[0][0]
    for transport, protocol in ends:
        protocol.connection_made(transport)
    ends = await upgrade(loop, ends)
    await exchange(ends, b"hello" * 10_000)
    ends[0][0].close()
    assert await ends[1][1].until_lost() is None
    assert await ends[0][1].until_lost() is None


async def test_read_ahead_goes_to_the_receiver_of_now(loop):
    """A protocol set in the middle gets what was not delivered yet."""
    near, far = tcp_pair()
    near.setblocking(False)
    far.setblocking(False)
    first, second, peer = Recorder(), ViewRecorder(), Recorder()
    accepting = asyncio.ensure_future(
        loop.connect_accepted_socket(lambda: peer, far, ssl=server_context()))
    transport, _ = await loop.create_connection(
        lambda: first, sock=near, ssl=client_context(), server_hostname="localhost")
    other, _ = await accepting
    transport.pause_reading()
    other.write(b"for the second")
    await turns(20)
    transport.set_protocol(second)
    transport.resume_reading()
    assert await second.until_received(14) == b"for the second"
    assert first.received == b""
    transport.abort()
    await second.until_lost()
    await peer.until_lost()

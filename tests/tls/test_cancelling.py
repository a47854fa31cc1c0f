"""A connection given up at any moment leaves nothing, and never half of itself."""
import asyncio
import ssl

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.net import attach, tcp_pair
from support.protocols import Echo, Recorder
from support.tls import TLSPeer, TLSServer, client_context, server_context
from support.waiting import quiet, soon, until

pytestmark = without_debug("the same steps")
MOST_STEPS = 200
TURNS = 20              # first one turn at a time, then a little longer


async def cancelled_after(steps, coroutine):
    """Run it for a while; None once cancelled, or its result."""
    task = asyncio.ensure_future(coroutine)
    for step in range(steps):
        await asyncio.sleep(0 if step < TURNS else 0.0002)
        if task.done():
            return task.result()
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def test_create_connection_at_every_step(loop):
    outcomes = set()
    async with TLSServer(loop, Echo) as server:
        for steps in range(MOST_STEPS):
            made = []

            def factory(made=made):
                made.append(Recorder())
                return made[-1]

            result = await cancelled_after(steps, server.connect(factory))
            outcomes.add(result is not None)
            if result is not None:
                transport, protocol = result
                transport.write(b"x")
                await protocol.until_received(1)
                transport.close()
                await protocol.until_lost()
                break
            await quiet()
            # Who was told of the connection is told of its end.
            for protocol in made:
                assert protocol.count("connection_made") == protocol.count("connection_lost")
    assert outcomes == {True, False}


@pytest.mark.parametrize("server_side", [False, True], ids=["client", "server"])
async def test_start_tls_at_every_step(loop, server_side):
    outcomes = set()
    for steps in range(MOST_STEPS):
        near, far = tcp_pair()
        transport, protocol = await attach(loop, near, Recorder)
        ours, theirs = client_context(), server_context()
        if server_side:
            ours, theirs = theirs, ours
        peer = TLSPeer(far, theirs, server_side=not server_side,
                       server_hostname="localhost" if server_side else None)
        handshake = loop.create_task(peer.handshake())
        upgraded = await cancelled_after(steps, loop.start_tls(
            transport, protocol, ours, server_side=server_side,
            server_hostname=None if server_side else "localhost"))
        outcomes.add(upgraded is not None)
        if upgraded is not None:
            await soon(handshake)
            upgraded.abort()
        elif steps == 0:
            transport.abort()       # it had not begun
        await until(lambda near=near: near.fileno() == -1, "the socket to be closed")
        handshake.cancel()
        await asyncio.gather(handshake, return_exceptions=True)
        peer.close()
        if upgraded is not None:
            break
    assert outcomes == {True, False}


@differs_from_asyncio("start_tls() gives a transport that is closed")
@pytest.mark.parametrize("method", ["abort", "close"])
async def test_ending_in_the_handshake(loop, method):
    """The transport is known to nobody yet but to the protocol of start_tls()."""
    near, far = tcp_pair()
    transport, protocol = await attach(loop, near, Recorder)
    upgrade = asyncio.ensure_future(loop.start_tls(transport, protocol, client_context(),
                                                   server_hostname="localhost"))
    await until(lambda: transport.get_protocol() is not protocol)
    getattr(transport, method)()
    if method == "close":
        far.close()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await soon(upgrade)
    far.close()
    await quiet()
    assert near.fileno() == -1


async def test_server_closed_while_clients_shake_hands(loop, unhandled):
    peers = []
    async with TLSServer(loop, Recorder) as server:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            peers.append((reader, writer))
        await quiet()
        server.server.close()
        for _, writer in peers:
            writer.close()
            await writer.wait_closed()
        await soon(server.server.wait_closed())
        assert all(not protocol.calls for protocol in server.protocols)
    unhandled.take()

"""loop.sendfile and loop.sock_sendfile."""
import asyncio
import os

import pytest
from support.features import needs
from support.loops import differs_from_asyncio
from support.net import BIG, Peer, connected, socket_pair
from support.protocols import Recorder
from support.waiting import quiet, soon, turns

pytestmark = needs("sendfile")
CONTENT = os.urandom(4 * BIG)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        yield opened


@pytest.mark.parametrize(("offset", "count"), [(0, None), (7, 100), (BIG, 2 * BIG)])
async def test_transport(loop, kind, file, offset, count):
    """What was written before comes first, what is written afterwards last."""
    expected = CONTENT[offset:] if count is None else CONTENT[offset:offset + count]
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(b"before")
        task = loop.create_task(loop.sendfile(transport, file, offset, count))
        assert await peer.recv_exactly(6 + len(expected)) == b"before" + expected
        assert await soon(task) == len(expected)
        transport.write(b"after")
        assert await peer.recv_exactly(5) == b"after"
        assert file.tell() == offset + len(expected)


@pytest.mark.parametrize(("offset", "count"), [(0, None), (7, 100), (BIG, 2 * BIG)])
async def test_socket(loop, kind, file, offset, count):
    expected = CONTENT[offset:] if count is None else CONTENT[offset:offset + count]
    near, far = socket_pair(kind)
    with near, far:
        task = loop.create_task(loop.sock_sendfile(near, file, offset, count))
        assert await Peer(far).recv_exactly(len(expected)) == expected
        assert await soon(task) == len(expected)
        assert file.tell() == offset + len(expected)


@differs_from_asyncio("it waits for ever")
@pytest.mark.parametrize("way", ["close", "abort"])
async def test_transport_that_ends_meanwhile(loop, kind, file, way):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        task = loop.create_task(loop.sendfile(transport, file))
        await quiet()
        getattr(transport, way)()
        with pytest.raises(ConnectionError):
            await soon(task)
        assert await protocol.until_lost() is None


@differs_from_asyncio("a wait on a closed socket keeps the number from its next owner")
async def test_closed_socket_leaves_the_next_owner_of_its_number_alone(loop, file):
    near, far = socket_pair("unix")
    number = near.fileno()
    task = loop.create_task(loop.sock_sendfile(near, file, fallback=False))
    await quiet()
    near.close()
    next_near, next_far = socket_pair("unix")
    with far, next_near, next_far:
        assert next_near.fileno() == number
        sending = loop.create_task(loop.sock_sendall(next_near, b"right" * BIG))
        assert await Peer(next_far).recv_exactly(5 * BIG) == b"right" * BIG
        await soon(sending)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await soon(task)


async def test_cancelled(loop, kind, file):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        task = loop.create_task(loop.sendfile(transport, file))
        await quiet()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        while peer.recv_now():
            await turns()
        transport.write(b"goes on")
        assert await peer.recv_exactly(7) == b"goes on"

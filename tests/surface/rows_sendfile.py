"""sendfile and sock_sendfile."""
import asyncio
import io

from support.net import Peer, tcp_pair
from support.waiting import soon

from surface.checks import equal, refused
from surface.ends import PLAIN, STREAMS, stream
from surface.rows import subject

row = subject("sendfile")
DATA = bytes(range(250)) * 4000        # more than the kernel takes at once


def data_file(folder, position=0):
    """A file that stands at this position."""
    path = folder / "data"
    path.write_bytes(DATA)
    file = path.open("rb")
    file.seek(position)
    return file


async def sent(coroutine, peer, size):
    """What the far end got, and what the coroutine returned."""
    result, data = await soon(asyncio.gather(coroutine, peer.recv_exactly(size)))
    equal(result, size, "bytes sent")
    return data


@row("sendfile(transport=, file=) returns the count and moves the file", ends=STREAMS)
async def sendfile(loop, folder, end):
    async with stream(loop, end) as (transport, _, peer):
        with data_file(folder) as file:
            data = await sent(loop.sendfile(transport, file), peer, len(DATA))
            assert data == DATA, "other bytes"
            equal(file.tell(), len(DATA))


@row("sendfile() begins at offset 0, wherever the file stands", ends=STREAMS)
async def offset_zero(loop, folder, end):
    async with stream(loop, end) as (transport, _, peer):
        with data_file(folder, 5) as file:
            count, data = await soon(asyncio.gather(
                loop.sendfile(transport, file), peer.recv_exactly(len(DATA) - 5)))
            assert data.startswith(DATA[:1000]), "from elsewhere"
            equal(count, len(DATA))


@row("sendfile(offset=, count=)", ends=STREAMS)
async def offset(loop, folder, end):
    async with stream(loop, end) as (transport, _, peer):
        with data_file(folder) as file:
            data = await sent(loop.sendfile(transport, file, 10, 1000), peer, 1000)
            equal(data, DATA[10:1010])
            equal(file.tell(), 1010)


@row("sendfile(fallback=False)", ends=PLAIN)
async def no_fallback(loop, folder, end):
    async with stream(loop, end) as (transport, _, peer):
        with data_file(folder) as file:
            await sent(loop.sendfile(transport, file, fallback=False), peer, len(DATA))
        await refused(loop.sendfile(transport, io.BytesIO(DATA), fallback=False), RuntimeError)


@row("sendfile(fallback=True) of what is no regular file", ends=STREAMS)
async def fallback(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        file = io.BytesIO(DATA)
        data = await sent(loop.sendfile(transport, file, fallback=True), peer, len(DATA))
        assert data == DATA, "other bytes"


@row("sendfile() comes after what was written before", ends=STREAMS)
async def order(loop, folder, end):
    async with stream(loop, end) as (transport, _, peer):
        with data_file(folder) as file:
            transport.write(b"first")
            size = len(DATA)
            count, data = await soon(asyncio.gather(
                loop.sendfile(transport, file), peer.recv_exactly(5 + size)))
            equal(count, size)
            transport.write(b"last")
            equal(data[:5] + await peer.recv_exactly(4), b"firstlast")


@row("sendfile() on a closing transport is a RuntimeError")
async def closing(loop, folder):
    async with stream(loop, "TCP") as (transport, _, _):
        with data_file(folder) as file:
            transport.close()
            await refused(loop.sendfile(transport, file), RuntimeError)


async def to_socket(loop, file, size, *args, **options):
    """sock_sendfile() to a socket; what arrived."""
    near, far = tcp_pair()
    try:
        return await sent(loop.sock_sendfile(near, file, *args, **options), Peer(far), size)
    finally:
        near.close()
        far.close()


@row("sock_sendfile(sock=, file=)")
async def sock_sendfile(loop, folder):
    with data_file(folder) as file:
        assert await to_socket(loop, file, len(DATA)) == DATA, "other bytes"
        equal(file.tell(), len(DATA))


@row("sock_sendfile(offset=, count=)")
async def sock_offset(loop, folder):
    with data_file(folder) as file:
        equal(await to_socket(loop, file, 1000, 10, 1000), DATA[10:1010])


@row("sock_sendfile(fallback=)")
async def sock_fallback(loop, folder):
    with data_file(folder) as file:
        await to_socket(loop, file, len(DATA), fallback=False)
    assert await to_socket(loop, io.BytesIO(DATA), len(DATA), fallback=True) == DATA
    near, far = tcp_pair()
    await refused(loop.sock_sendfile(near, io.BytesIO(DATA), fallback=False), RuntimeError)
    near.close()
    far.close()

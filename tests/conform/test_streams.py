"""asyncio's stream reader and writer on top of the loop's transports."""
import asyncio
import contextlib
import os

import pytest
from support.loops import without_debug
from support.net import BIG, LOOPBACK, Peer, socket_pair
from support.waiting import quiet, soon


class Ends:
    """A reader and writer, and the plain far end."""

    def __init__(self, loop, kind):
        self.near, far = socket_pair(kind)
        self.peer = Peer(far)
        self.connect = asyncio.open_unix_connection if kind == "unix" else asyncio.open_connection

    async def __aenter__(self):
        self.reader, self.writer = await self.connect(sock=self.near, limit=1000)
        return self.reader, self.writer, self.peer

    async def __aexit__(self, *exc_info):
        self.writer.close()
        self.peer.close()
        with contextlib.suppress(ConnectionError):
            await soon(self.writer.wait_closed())


async def test_lines(loop, kind):
    async with Ends(loop, kind) as (reader, _, peer):
        await peer.send(b"one\ntwo\nthr")
        assert await soon(reader.readline()) == b"one\n"
        assert await soon(reader.readline()) == b"two\n"
        await peer.send(b"ee\n")
        peer.close()
        assert await soon(reader.readline()) == b"three\n"
        assert await soon(reader.readline()) == b""
        assert reader.at_eof()


async def test_readexactly_and_its_error(loop, kind):
    async with Ends(loop, kind) as (reader, _, peer):
        await peer.send(b"0123456789")
        assert await soon(reader.readexactly(4)) == b"0123"
        peer.close()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await soon(reader.readexactly(100))
        assert caught.value.partial == b"456789"


async def test_readuntil_over_the_limit(loop, kind):
    async with Ends(loop, kind) as (reader, _, peer):
        await peer.send(b"x" * 3000)
        with pytest.raises(asyncio.LimitOverrunError):
            await soon(reader.readuntil(b"\n"))
        assert len(await soon(reader.readexactly(3000))) == 3000


@without_debug("moves megabytes")
async def test_large_reads_through_a_small_limit(loop, kind):
    async with Ends(loop, kind) as (reader, _, peer):
        data = os.urandom(BIG)
        sending = loop.create_task(peer.send(data))
        assert await soon(reader.readexactly(BIG)) == data
        await sending


async def test_drain_waits_for_the_far_end(loop, kind):
    async with Ends(loop, kind) as (_, writer, peer):
        writer.write(b"x" * BIG)
        draining = loop.create_task(writer.drain())
        await quiet()
        assert not draining.done()
        await peer.recv_exactly(BIG)
        await soon(draining)


async def test_drain_returns_at_once_when_there_is_room(loop, kind):
    async with Ends(loop, kind) as (_, writer, peer):
        writer.write(b"x")
        await soon(writer.drain())
        assert await peer.recv_exactly(1) == b"x"


async def test_drain_fails_when_the_far_end_goes(loop, kind):
    async with Ends(loop, kind) as (_, writer, peer):
        writer.write(b"x" * BIG)
        draining = loop.create_task(writer.drain())
        await quiet()
        peer.close()
        with pytest.raises(ConnectionError):
            await soon(draining)


async def test_half_close(loop, kind):
    async with Ends(loop, kind) as (reader, writer, peer):
        writer.write(b"question")
        assert writer.can_write_eof()
        writer.write_eof()
        assert await peer.recv_all() == b"question"
        await peer.send(b"answer")
        peer.close()
        assert await soon(reader.read()) == b"answer"


async def test_wait_closed(loop, kind):
    async with Ends(loop, kind) as (_, writer, peer):
        writer.write(b"bye")
        writer.close()
        assert writer.is_closing()
        await soon(writer.wait_closed())
        assert await peer.recv_all() == b"bye"


async def test_server_with_many_clients(loop):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def ask(number):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        answers = []
        for i in range(10):
            writer.write(b"client %d, line %d\n" % (number, i))
            answers.append(await reader.readline())
        writer.close()
        await writer.wait_closed()
        return answers

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        answers = await soon(asyncio.gather(*(ask(number) for number in range(20))))
    assert answers == [
        [b"CLIENT %d, LINE %d\n" % (number, i) for i in range(10)] for number in range(20)
    ]


async def test_exception_in_a_client_handler_is_reported(loop, unhandled):
    async def serve(reader, writer):
        try:
            raise ZeroDivisionError
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await soon(reader.read()) == b""
        writer.close()
        await writer.wait_closed()
    contexts = unhandled.take()
    assert contexts
    assert isinstance(contexts[0]["exception"], ZeroDivisionError)


async def test_asynchronous_iteration(loop, kind):
    async with Ends(loop, kind) as (reader, _, peer):
        await peer.send(b"a\nb\nc\n")
        peer.close()
        assert [line async for line in reader] == [b"a\n", b"b\n", b"c\n"]

"""Writing to a stream transport: order, snapshots, flow control."""
import array
import os
import socket

import pytest
from support.loops import differs_from_asyncio, only_in_debug, without_debug
from support.net import BIG, Peer, attach, connected, socket_pair
from support.protocols import HalfOpenRecorder, Recorder
from support.waiting import quiet, turns, until

keeps_a_view = differs_from_asyncio("it keeps a view of what it could not send", since=(3, 12))


async def test_bytes_arrive(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(b"hello")
        assert await peer.recv_exactly(5) == b"hello"


async def test_first_write_goes_out_before_the_callback_ends(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(b"now")
        assert peer.recv_now() == b"now"
        assert transport.get_write_buffer_size() == 0


async def test_writes_keep_their_order(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        expected = b""
        for i in range(500):
            piece = b"%d," % i * (i % 7 + 1)
            expected += piece
            transport.write(piece)
            if i % 50 == 0:
                await turns(1)
        assert await peer.recv_exactly(len(expected)) == expected


@pytest.mark.parametrize(
    "data",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(bytearray(b"xabcx"))[1:4]],
    ids=["bytes", "bytearray", "memoryview", "slice"],
)
async def test_any_bytes_like_object_can_be_written(loop, kind, data):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(data)
        transport.writelines([data, data])
        assert await peer.recv_exactly(9) == b"abcabcabc"


@pytest.mark.parametrize("bad", ["text", None, 1, [b"x"], object()])
async def test_what_is_not_bytes_like_is_refused(loop, kind, bad):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        with pytest.raises(TypeError):
            transport.write(bad)
        assert not transport.is_closing()
        transport.write(b"ok")
        assert await peer.recv_exactly(2) == b"ok"


async def test_empty_writes_do_nothing(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(b"")
        transport.writelines([])
        transport.writelines([b"", b""])
        transport.write(bytearray())
        await turns()
        assert transport.get_write_buffer_size() == 0
        transport.write(b"x")
        assert await peer.recv_exactly(1) == b"x"
        assert peer.recv_now() == b""


async def test_more_than_the_kernel_takes(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = os.urandom(BIG)
        transport.write(data)
        assert transport.get_write_buffer_size() > 0
        assert await peer.recv_exactly(BIG) == data
        await until(lambda: transport.get_write_buffer_size() == 0)
        transport.write(b"after")
        assert await peer.recv_exactly(5) == b"after"


@without_debug("moves megabytes")
async def test_ten_mebibytes_to_a_slow_reader(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = os.urandom(1 << 20) * 10
        transport.write(data)
        received = bytearray()
        while len(received) < len(data):
            received += await peer.recv(50_000)
            await turns(1)
        assert received == data


async def test_write_to_a_full_connection_is_queued(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, _, peer):
        data = os.urandom(1 << 20)
        transport.write(data)
        expected = data
        for i in range(50):
            piece = b"%d;" % i
            transport.write(piece)
            expected += piece
        assert await peer.recv_exactly(len(expected)) == expected


@without_debug("moves megabytes")
async def test_writelines_of_thousands_of_pieces(loop, kind):
    """More than one system call takes (IOV_MAX)."""
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        pieces = [b"%d," % i for i in range(5000)]
        transport.writelines(pieces)
        expected = b"".join(pieces)
        assert await peer.recv_exactly(len(expected)) == expected
        big = [os.urandom(1000) for _ in range(5000)]
        transport.writelines(big)
        expected = b"".join(big)
        assert await peer.recv_exactly(len(expected)) == expected


async def test_writelines_takes_any_iterable(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.writelines(iter([b"a", b"", bytearray(b"b"), memoryview(b"c")]))
        transport.writelines(b"%d" % i for i in range(3))
        transport.writelines((b"x",))
        assert await peer.recv_exactly(7) == b"abc012x"


async def test_writelines_after_queued_data(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, _, peer):
        data = os.urandom(1 << 20)
        transport.write(data)
        transport.writelines([b"one", b"two"])
        transport.write(b"three")
        got = await peer.recv_exactly(len(data) + 11)
        assert got == data + b"onetwothree"


@pytest.mark.parametrize("bad", [1, ["text"], [b"x", None]])
async def test_writelines_of_something_else_is_refused(loop, kind, bad):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        with pytest.raises(TypeError):
            transport.writelines(bad)


@keeps_a_view
async def test_bytearray_may_be_changed_after_the_write(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = bytearray(b"a" * BIG)
        transport.write(data)
        data[:] = b"b" * BIG
        assert await peer.recv_exactly(BIG) == b"a" * BIG


@keeps_a_view
async def test_bytearray_may_be_resized_after_the_write(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = bytearray(b"a" * BIG)
        transport.write(data)
        del data[10:]
        data += b"b" * 100
        assert await peer.recv_exactly(BIG) == b"a" * BIG


@keeps_a_view
async def test_writelines_takes_a_snapshot_too(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        pieces = [bytearray(b"a" * (BIG // 4)) for _ in range(4)]
        transport.writelines(pieces)
        for piece in pieces:
            piece[:] = b"b" * len(piece)
            piece.clear()
        assert await peer.recv_exactly(BIG) == b"a" * BIG


async def test_small_bytearrays_of_one_turn_are_snapshots(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = bytearray(b"0")
        for i in range(10):
            data[:] = b"%d" % i
            transport.write(data)
        data.clear()
        assert await peer.recv_exactly(10) == b"0123456789"


@differs_from_asyncio("it counts the items of a wide memoryview instead of its bytes")
async def test_memoryview_of_wide_items(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = array.array("Q", range(BIG // 8))
        transport.write(memoryview(data))
        assert await peer.recv_exactly(BIG) == data.tobytes()


async def test_write_buffer_size_counts_bytes(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, _, peer):
        transport.write(b"x" * BIG)
        size = transport.get_write_buffer_size()
        assert 0 < size <= BIG
        transport.write(b"y" * 1000)
        assert transport.get_write_buffer_size() == size + 1000
        transport.writelines([b"z" * 10] * 5)
        assert 0 < transport.get_write_buffer_size() <= size + 1050
        sent = BIG + 1050 - transport.get_write_buffer_size()
        assert len(await peer.recv_exactly(sent)) == sent


async def test_default_watermarks(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        assert transport.get_write_buffer_limits() == (16384, 65536)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, (16384, 65536)),
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 1000, "low": 500}, (500, 1000)),
        ({"high": 0}, (0, 0)),
        ({"high": 10, "low": 10}, (10, 10)),
        ({"high": 3}, (0, 3)),
    ],
)
async def test_set_write_buffer_limits(loop, kind, given, limits):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        transport.set_write_buffer_limits(**given)
        assert transport.get_write_buffer_limits() == limits


@pytest.mark.parametrize("given", [{"high": 1, "low": 2}, {"low": -1}, {"high": -1}])
async def test_limits_that_make_no_sense_are_refused(loop, kind, given):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        with pytest.raises(ValueError, match="must be >="):
            transport.set_write_buffer_limits(**given)
        assert transport.get_write_buffer_limits() == (16384, 65536)


async def fill(transport, protocol, piece=10_000):
    """Write until the protocol is told to pause; gives the number of bytes written."""
    written = 0
    while protocol.count("pause_writing") <= protocol.count("resume_writing"):
        assert written < 64 << 20
        transport.write(b"x" * piece)
        written += piece
        await turns(1)
    return written


async def test_pause_writing_comes_above_the_high_mark(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, _):
        transport.set_write_buffer_limits(high=100_000, low=20_000)
        await fill(transport, protocol)
        size = protocol.calls[-1][1]
        assert 100_000 < size <= 110_000


async def test_pause_writing_comes_from_inside_write(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        transport.write(b"x" * BIG)
        assert protocol.count("pause_writing") == 1


async def test_exactly_the_high_mark_does_not_pause(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, _):
        transport.set_write_buffer_limits(high=BIG, low=0)
        transport.write(b"x" * (BIG // 2))
        queued = transport.get_write_buffer_size()
        transport.write(b"x" * (BIG - queued))
        assert transport.get_write_buffer_size() == BIG
        assert protocol.count("pause_writing") == 0
        transport.write(b"x")
        assert protocol.count("pause_writing") == 1


async def test_pause_writing_is_not_repeated(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, _):
        await fill(transport, protocol)
        for _ in range(5):
            transport.write(b"x" * 100_000)
            await turns(1)
        assert protocol.count("pause_writing") == 1


async def test_resume_writing_comes_at_the_low_mark(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=100_000, low=20_000)
        written = await fill(transport, protocol)
        received = 0
        while not protocol.count("resume_writing"):
            assert received < written
            received += len(peer.recv_now(2000))
            await quiet()
        assert protocol.calls[-1] == ("resume_writing", protocol.calls[-1][1])
        assert protocol.calls[-1][1] <= 20_000
        await peer.recv_exactly(written - received)


async def test_pause_and_resume_alternate(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=50_000)
        for _ in range(3):
            written = await fill(transport, protocol)
            await peer.recv_exactly(written)
            await until(lambda: transport.get_write_buffer_size() == 0)
            await protocol.until(lambda p: p.count("resume_writing") == p.count("pause_writing"))
        names = [call[0] for call in protocol.calls if "writing" in call[0]]
        assert names == ["pause_writing", "resume_writing"] * 3


async def test_zero_high_mark_pauses_for_any_queued_byte(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=0)
        written = await fill(transport, protocol, 4000)
        assert protocol.calls[-1][1] > 0
        await peer.recv_exactly(written)
        await protocol.until_called("resume_writing")
        assert protocol.calls[-1] == ("resume_writing", 0)


async def test_small_writes_never_pause(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.set_write_buffer_limits(high=50_000)
        for _ in range(200):
            transport.write(b"x" * 100)
        await peer.recv_exactly(20_000)
        assert protocol.count("pause_writing") == 0


async def test_pause_and_resume_need_no_methods(loop, kind):
    """A protocol without flow control methods of its own works as well."""
    import asyncio

    near, far = socket_pair(kind)
    peer = Peer(far)
    transport, _ = await attach(loop, near, asyncio.Protocol)
    transport.write(b"x" * BIG)
    assert len(await peer.recv_exactly(BIG)) == BIG
    transport.close()
    assert await peer.recv() == b""
    peer.close()
    await until(lambda: near.fileno() == -1)


async def test_two_writes_of_one_callback_leave_together(loop):
    """The second and later writes of a turn are held back until its end, and then sent as one."""
    async with connected(loop, "tcp", Recorder) as (transport, _, peer):
        transport.write(b"head")
        for piece in (b"body ", b"in ", b"pieces"):
            transport.write(piece)
        assert await peer.recv_exactly(18) == b"headbody in pieces"


async def test_coalesced_writes_go_out_without_further_events(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write(b"one ")
        transport.write(b"two ")
        transport.write(b"three")
        assert await peer.recv_exactly(13) == b"one two three"
        assert transport.get_write_buffer_size() == 0


async def test_write_in_connection_made(loop, kind):
    class Greets(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.write(b"hello ")
            transport.write(b"there")

    async with connected(loop, kind, Greets) as (_, _protocol, peer):
        assert await peer.recv_exactly(11) == b"hello there"


async def test_write_in_data_received_and_eof_received(loop, kind):
    class Answers(HalfOpenRecorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.write(data.upper())

        def eof_received(self):
            self.transport.write(b"!")
            return super().eof_received()

    async with connected(loop, kind, Answers) as (_, _protocol, peer):
        await peer.send(b"abc")
        assert await peer.recv_exactly(3) == b"ABC"
        peer.sock.shutdown(socket.SHUT_WR)
        assert await peer.recv_exactly(1) == b"!"


async def test_write_in_resume_writing(loop, kind):
    class GoesOn(Recorder):
        left = 3

        def resume_writing(self):
            super().resume_writing()
            if self.left:
                self.left -= 1
                self.transport.write(b"y" * BIG)

    async with connected(loop, kind, GoesOn) as (transport, _, peer):
        transport.write(b"x" * BIG)
        data = await peer.recv_exactly(4 * BIG)
        assert data.count(b"x") == BIG
        assert data.count(b"y") == 3 * BIG


async def test_echo_both_ways_at_once(loop, kind):
    """Reading goes on while writing is blocked."""
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        await peer.send(b"hello")
        await protocol.until_received(5)
        assert transport.get_write_buffer_size() > 0
        await peer.recv_exactly(BIG)


@pytest.mark.parametrize("size", [1, 100, 16384, 16385, 65536, 65537, 300_000])
async def test_pieces_of_any_size_in_one_turn(loop, kind, size):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = os.urandom(3 * size)
        for i in range(3):
            transport.write(data[i * size:(i + 1) * size])
        assert await peer.recv_exactly(3 * size) == data


@only_in_debug
async def test_debug_mode_writes_the_same_bytes(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = os.urandom(1 << 20)
        transport.writelines([data[:10], data[10:]])
        assert await peer.recv_exactly(1 << 20) == data


async def test_no_resume_after_an_abort(loop, kind):
    """Not even if the kernel had reported room in the very same turn."""
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"x" * (4 * BIG))
        assert protocol.names[-1] == "pause_writing"
        await turns()
        near, far = socket.socketpair()
        with near, far:
            def abort():
                loop.remove_reader(near)
                transport.abort()

            loop.add_reader(near, abort)
            far.send(b"x")
            peer.recv_now(4 * BIG)
            await protocol.until_lost()
        assert protocol.names == ["connection_made", "pause_writing", "connection_lost"]

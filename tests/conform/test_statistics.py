"""The counters of a loop."""
import asyncio
import dataclasses
import socket

import pytest
from support.loops import only_mode
from support.net import BIG, connected
from support.protocols import Recorder
from support.waiting import in_thread, quiet, turns, until

pytestmark = [pytest.mark.eploop_only("asyncio keeps no counters")]
COUNTERS = (
    "turns", "polls", "events", "callbacks", "wakeups_written", "wakeups_avoided",
    "timers_scheduled", "timers_fired", "timers_cancelled", "epoll_ctl_calls", "would_blocks",
    "bytes_received", "bytes_sent", "open_transports", "ready_depth",
)


def difference(before, after):
    return {name: getattr(after, name) - getattr(before, name) for name in COUNTERS}


def test_snapshot_is_frozen(loop):
    snapshot = loop.statistics()
    assert dataclasses.is_dataclass(snapshot)
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.turns = 5


def test_all_counters_are_integers(loop):
    snapshot = loop.statistics()
    for name in COUNTERS:
        assert isinstance(getattr(snapshot, name), int)
        assert getattr(snapshot, name) >= 0


def test_new_loop_has_done_nothing(loop):
    snapshot = loop.statistics()
    assert snapshot.turns == snapshot.callbacks == snapshot.bytes_sent == 0
    assert snapshot.timers_scheduled == snapshot.open_transports == 0


def test_snapshot_does_not_change(loop):
    snapshot = loop.statistics()
    copy = dataclasses.asdict(snapshot)
    loop.run_until_complete(asyncio.sleep(0.001))
    assert dataclasses.asdict(snapshot) == copy
    assert loop.statistics() != snapshot


def test_callbacks_are_counted(loop):
    before = loop.statistics()
    for _ in range(100):
        loop.call_soon(int)
    loop.call_soon(loop.stop)
    loop.run_forever()
    counted = difference(before, loop.statistics())
    assert counted["callbacks"] == 101
    assert counted["turns"] == 1


def test_ready_depth(loop):
    for _ in range(7):
        loop.call_soon(int)
    assert loop.statistics().ready_depth == 7
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert loop.statistics().ready_depth == 0


async def test_turns_are_counted(loop):
    before = loop.statistics()
    await turns(50)
    assert 50 <= difference(before, loop.statistics())["turns"] <= 60


async def test_timers_are_counted(loop):
    before = loop.statistics()
    handles = [loop.call_later(3600, int) for _ in range(10)]
    for handle in handles[:4]:
        handle.cancel()
    await asyncio.sleep(0.001)
    counted = difference(before, loop.statistics())
    assert counted["timers_scheduled"] == 11
    assert counted["timers_cancelled"] == 4
    assert counted["timers_fired"] == 1
    for handle in handles:
        handle.cancel()
    assert difference(before, loop.statistics())["timers_cancelled"] == 10


async def test_bytes_are_counted(loop, kind):
    before = loop.statistics()
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        await peer.send(b"x" * 1000)
        await protocol.until_received(1000)
        transport.write(b"y" * 500)
        await peer.recv_exactly(500)
        counted = difference(before, loop.statistics())
        assert counted["bytes_received"] == 1000
        assert counted["bytes_sent"] == 500


async def test_open_transports_are_counted(loop, kind):
    assert loop.statistics().open_transports == 0
    async with connected(loop, kind, Recorder):
        assert loop.statistics().open_transports == 1
        async with connected(loop, kind, Recorder):
            assert loop.statistics().open_transports == 2
    await turns()
    assert loop.statistics().open_transports == 0


async def test_wakeups_from_the_own_thread_are_avoided(loop):
    before = loop.statistics()
    for _ in range(100):
        loop.call_soon_threadsafe(int)
    await turns()
    assert difference(before, loop.statistics())["wakeups_written"] == 0


def test_at_most_one_wakeup_is_written_for_each_sleep(loop):
    before = loop.statistics()

    def post():
        for _ in range(2000):
            loop.call_soon_threadsafe(int)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    counted = difference(before, loop.statistics())
    assert counted["wakeups_written"] <= counted["polls"] + 1
    assert counted["wakeups_written"] + counted["wakeups_avoided"] == 2001


async def echo(peer, protocol, transport, rounds):
    for i in range(rounds):
        await peer.send(b"ping")
        await protocol.until_received(4 * (i + 1))
        transport.write(b"pong")
        await peer.recv_exactly(4)


@only_mode("edge")
async def test_edge_mode_needs_no_epoll_ctl_while_connected(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        await echo(peer, protocol, transport, 1)
        before = loop.statistics()
        await echo(peer, protocol, transport, 20)
        counted = difference(before, loop.statistics())
        assert counted["epoll_ctl_calls"] == 0
        assert counted["would_blocks"] == 0


@only_mode("edge")
async def test_edge_mode_needs_no_epoll_ctl_for_pause_and_resume(loop):
    """But for Unix sockets, which are level-triggered: see transports/stream.pyx."""
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        await echo(peer, protocol, transport, 1)
        before = loop.statistics()
        for i in range(10):
            transport.pause_reading()
            await peer.send(b"x")
            await quiet()
            transport.resume_reading()
            await protocol.until_received(5 + i)
        assert difference(before, loop.statistics())["epoll_ctl_calls"] == 0


@only_mode("edge")
async def test_edge_mode_needs_no_epoll_ctl_for_a_slow_reader(loop):
    async with connected(loop, "tcp", Recorder) as (transport, _, peer):
        await turns()
        before = loop.statistics()
        transport.write(b"x" * (8 * BIG))
        await peer.recv_exactly(8 * BIG)
        await until(lambda: transport.get_write_buffer_size() == 0)
        assert difference(before, loop.statistics())["epoll_ctl_calls"] == 0


@only_mode("edge")
async def test_one_way_sender_over_unix_is_not_woken(loop):
    """The far end consumes; the sender has no reason to wake up."""
    async with connected(loop, "unix", Recorder) as (transport, _, peer):
        await turns()
        before = loop.statistics()
        for _ in range(50):
            transport.write(b"x")
            peer.recv_now()
            await turns(1)
        await quiet()
        assert difference(before, loop.statistics())["events"] <= 2


async def test_idle_loop_does_not_poll(loop):
    near, far = socket.socketpair()
    loop.add_reader(near, int)
    before = loop.statistics()
    await asyncio.sleep(0.1)
    assert difference(before, loop.statistics())["polls"] < 20
    loop.remove_reader(near)
    near.close()
    far.close()


async def test_turn_time_histogram(loop):
    await turns(100)
    histogram = loop.statistics().turn_time_histogram
    assert isinstance(histogram, tuple)
    assert all(isinstance(count, int) and count >= 0 for count in histogram)
    assert sum(histogram) <= loop.statistics().turns
    assert sum(histogram) >= 50


def test_statistics_of_a_closed_loop(loop):
    loop.run_until_complete(turns(10))
    before = loop.statistics()
    loop.close()
    assert loop.statistics().turns == before.turns

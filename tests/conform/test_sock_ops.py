"""The sock_* coroutines."""
import asyncio
import os
import socket

import pytest
from support.loops import differs_from_asyncio
from support.net import (
    BIG,
    LOOPBACK,
    Peer,
    attach,
    socket_pair,
    tcp_pair,
    unused_port,
)
from support.protocols import Recorder
from support.waiting import is_idle, quiet, soon, turns, until

pytestmark = pytest.mark.needs("sock_ops")


def polls(loop):
    """How often the kernel was asked; 0 on asyncio, which does not say."""
    return loop.statistics().polls if hasattr(loop, "statistics") else 0


def events(loop):
    return loop.statistics().events if hasattr(loop, "statistics") else 0


@pytest.fixture
def listener():
    with socket.create_server((LOOPBACK, 0)) as sock:
        sock.setblocking(False)
        yield sock


@pytest.fixture
def pair(kind):
    near, far = socket_pair(kind)
    with near, far:
        yield near, far


async def test_recv_what_is_there(loop, pair):
    near, far = pair
    far.send(b"hello")
    assert await soon(loop.sock_recv(near, 100)) == b"hello"


async def test_recv_waits(loop, pair):
    near, far = pair
    for i in range(5):
        task = loop.create_task(loop.sock_recv(near, 100))
        await turns()
        assert not task.done()
        far.send(b"%d" % i)
        assert await soon(task) == b"%d" % i


async def test_recv_at_the_end(loop, pair):
    near, far = pair
    task = loop.create_task(loop.sock_recv(near, 100))
    await turns()
    far.close()
    assert await soon(task) == b""
    assert await soon(loop.sock_recv(near, 100)) == b""


async def test_recv_into(loop, pair):
    near, far = pair
    buffer = bytearray(10)
    task = loop.create_task(loop.sock_recv_into(near, buffer))
    await turns()
    far.send(b"hello")
    assert await soon(task) == 5
    assert buffer[:5] == b"hello"


async def test_sendall_more_than_the_kernel_takes(loop, pair):
    near, far = pair
    data = os.urandom(4 * BIG)
    task = loop.create_task(loop.sock_sendall(near, data))
    assert await Peer(far).recv_exactly(len(data)) == data
    assert await soon(task) is None


async def test_sendall_and_recv_at_once(loop, pair):
    near, far = pair
    reading = loop.create_task(loop.sock_recv(near, 100))
    writing = loop.create_task(loop.sock_sendall(near, b"x" * (4 * BIG)))
    await turns()
    far.send(b"hello")
    assert await soon(reading) == b"hello"
    await Peer(far).recv_exactly(4 * BIG)
    await soon(writing)


async def test_connect_and_accept(loop):
    with socket.create_server((LOOPBACK, 0)) as listener, socket.socket() as sock:
        listener.setblocking(False)
        sock.setblocking(False)
        task = loop.create_task(loop.sock_accept(listener))
        await soon(loop.sock_connect(sock, listener.getsockname()))
        accepted, address = await soon(task)
        with accepted:
            assert address == sock.getsockname()
            assert accepted.gettimeout() == 0
            await soon(loop.sock_sendall(sock, b"x"))
            assert await soon(loop.sock_recv(accepted, 1)) == b"x"


async def test_connect_refused(loop):
    with socket.socket() as sock:
        sock.setblocking(False)
        with pytest.raises(ConnectionRefusedError):
            await soon(loop.sock_connect(sock, (LOOPBACK, unused_port())))


async def test_cancelled_recv_leaves_the_next_one_alone(loop, pair):
    near, far = pair
    for _ in range(3):
        task = loop.create_task(loop.sock_recv(near, 100))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    far.send(b"x")
    assert await soon(loop.sock_recv(near, 100)) == b"x"


async def test_data_taken_by_somebody_else(loop, pair):
    """The waiting task is not resumed with nothing."""
    near, far = pair
    task = loop.create_task(loop.sock_recv(near, 100))
    await turns()
    far.send(b"stolen")
    assert near.recv(100) == b"stolen"
    await quiet()
    assert not task.done()
    far.send(b"left")
    assert await soon(task) == b"left"


async def test_number_used_again(loop, kind):
    for i in range(10):
        near, far = socket_pair(kind)
        task = loop.create_task(loop.sock_recv(near, 100))
        await turns()
        far.send(b"%d" % i)
        assert await soon(task) == b"%d" % i
        near.close()
        far.close()


@differs_from_asyncio("a second wait replaces the first, which never ends")
async def test_two_tasks_wait_for_the_same_socket(loop, listener):
    """Each connection wakes both, and one of them gets it."""
    tasks = [loop.create_task(loop.sock_accept(listener)) for _ in range(2)]
    await turns()
    for _ in range(2):
        with socket.create_connection(listener.getsockname()):
            done, tasks = await asyncio.wait(tasks, return_when="FIRST_COMPLETED", timeout=5)
            assert len(done) == 1
            done.pop().result()[0].close()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_wait_beside_a_handler(loop, pair, cancelled):
    """The handler goes on, the end of the wait is the end of its events."""
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(100)))
    task = loop.create_task(loop.sock_sendall(near, bytes(BIG)))
    await turns()
    far.send(b"x")
    await until(lambda: got)
    assert not task.done()
    if cancelled:
        task.cancel()
        await turns()
    while not task.done():
        await Peer(far).recv()
    before = polls(loop)
    await quiet()
    assert polls(loop) - before < 50
    far.send(b"y")
    await until(lambda: len(got) == 2)
    assert loop.remove_reader(near)


async def test_handler_beside_a_wait_ends(loop, pair):
    near, far = pair
    task = loop.create_task(loop.sock_recv(near, 100))
    await turns()
    loop.add_writer(near, int)
    await turns()
    assert loop.remove_writer(near)
    far.send(b"x")
    assert await soon(task) == b"x"
    before = polls(loop)
    await quiet()
    assert polls(loop) - before < 50


async def test_duplicate_of_a_closed_socket_is_nobodys_business(loop, pair):
    near, far = pair
    task = loop.create_task(loop.sock_recv(near, 100))
    await turns()
    far.send(b"x")
    assert await soon(task) == b"x"
    with near.dup() as other:
        near.close()
        for _ in range(20):
            far.send(b"y")
            await asyncio.sleep(0.001)
        before = events(loop)
        for _ in range(20):
            far.send(b"y")
            await asyncio.sleep(0.001)
        assert events(loop) == before
        assert other.recv(1) == b"y"


async def test_data_that_came_while_nobody_waited(loop, pair):
    near, far = pair
    for _ in range(5):
        task = loop.create_task(loop.sock_recv(near, 4))
        await turns()
        far.send(b"1234567890")
        assert await soon(task) == b"1234"
        await quiet()
        assert await soon(loop.sock_recv(near, 4)) == b"5678"
        assert near.recv(10) == b"90"


async def test_blocking_socket_is_refused_in_debug(loop, pair):
    near, _ = pair
    near.setblocking(True)
    loop.set_debug(True)
    for coro in (
        loop.sock_recv(near, 1), loop.sock_sendall(near, b"x"),
        loop.sock_recv_into(near, bytearray(1)), loop.sock_accept(near),
        loop.sock_connect(near, "x"),
    ):
        with pytest.raises(ValueError, match="non-blocking"):
            await coro


async def test_descriptor_of_a_transport_is_refused(loop):
    near, far = tcp_pair()
    transport, protocol = await attach(loop, near, Recorder)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recv(near, 100)
    transport.abort()
    await protocol.until_lost()
    far.close()


async def test_datagrams(loop):
    with socket.socket(type=socket.SOCK_DGRAM) as near, socket.socket(
            type=socket.SOCK_DGRAM) as far:
        for sock in (near, far):
            sock.bind((LOOPBACK, 0))
            sock.setblocking(False)
        assert await soon(loop.sock_sendto(near, b"hello", far.getsockname())) == 5
        assert await soon(loop.sock_recvfrom(far, 100)) == (b"hello", near.getsockname())
        buffer = bytearray(10)
        task = loop.create_task(loop.sock_recvfrom_into(near, buffer))
        await turns()
        await soon(loop.sock_sendto(far, b"x", near.getsockname()))
        assert await soon(task) == (1, far.getsockname())


class Look:
    """A socket in disguise, as wrappers of sockets are."""

    def __init__(self, sock):
        self._sock = sock

    def __getattr__(self, name):
        return getattr(self._sock, name)


@pytest.mark.parametrize("wrap", [lambda sock: sock, Look], ids=["socket", "wrapper"])
async def test_sendall_beside_a_reader(loop, pair, wrap):
    """What it waited for is not reported for ever, and the reader stays."""
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(100)))
    sending = loop.create_task(loop.sock_sendall(wrap(near), b"x" * (4 * BIG)))
    await Peer(far).recv_exactly(4 * BIG)
    await soon(sending)
    assert await is_idle(loop, 0.1)
    far.send(b"hello")
    await until(lambda: got)
    assert loop.remove_reader(near) is True


async def test_cancelled_sendall_beside_a_reader(loop, pair):
    near, far = pair
    loop.add_reader(near, print)
    sending = loop.create_task(loop.sock_sendall(near, b"x" * (4 * BIG)))
    await turns()
    sending.cancel()
    await asyncio.wait([sending])
    Peer(far).recv_now(8 * BIG)
    await quiet()
    assert await is_idle(loop, 0.1)
    loop.remove_reader(near)


async def test_unwanted_data_do_not_end_a_wait_for_room(loop, pair):
    near, far = pair
    near = Look(near)
    reading = loop.create_task(loop.sock_recv(near, 100))
    await turns()
    far.send(b"1")
    await soon(reading)
    sending = loop.create_task(loop.sock_sendall(near, b"x" * (4 * BIG)))
    await quiet()
    far.send(b"2")
    await quiet()
    await Peer(far).recv_exactly(4 * BIG)
    await soon(sending)


@differs_from_asyncio("a wait on a closed socket keeps the number from its next owner")
@pytest.mark.parametrize("what", ["recv", "recv_into", "sendall"])
async def test_closed_socket_leaves_the_next_owner_of_its_number_alone(loop, what):
    near, far = socket_pair("unix")
    calls = {
        "recv": lambda: loop.sock_recv(near, 100),
        "recv_into": lambda: loop.sock_recv_into(near, bytearray(100)),
        "sendall": lambda: loop.sock_sendall(near, b"wrong" * BIG),
    }
    number = near.fileno()
    doomed = loop.create_task(calls[what]())
    await turns()
    near.close()
    next_near, next_far = socket_pair("unix")
    with far, next_near, next_far:
        assert next_near.fileno() == number
        if what == "sendall":
            task = loop.create_task(loop.sock_sendall(next_near, b"right" * BIG))
            assert await Peer(next_far).recv_exactly(5 * BIG) == b"right" * BIG
            await soon(task)
        else:
            task = loop.create_task(loop.sock_recv(next_near, 100))
            await turns()
            next_far.send(b"for the next one")
            assert await soon(task) == b"for the next one"
    with pytest.raises(OSError, match="Bad file descriptor"):
        await soon(doomed)


async def test_receiving_nothing_does_not_wait(loop, pair):
    near, _ = pair
    assert await soon(loop.sock_recv(near, 0)) == b""
    assert await soon(loop.sock_recv_into(near, bytearray())) == 0


async def test_empty_datagram_by_sendall(loop):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        await soon(loop.sock_sendall(near, b""))
        assert await soon(loop.sock_recvfrom(far, 100)) == (b"", None)


async def test_nothing_wanted_is_nothing_waited_for(loop, pair):
    near, _ = pair
    assert await soon(loop.sock_recv(near, 0)) == b""
    assert await soon(loop.sock_recv_into(near, bytearray())) == 0
    assert await soon(loop.sock_sendall(near, b"")) is None


@differs_from_asyncio("its selector goes on believing that the closed descriptor is registered")
async def test_wait_on_a_closed_socket_takes_nothing_from_the_next_one(loop):
    """The first socket is closed while a task waits for it, and its number is used again."""
    first, far = socket.socketpair()
    first.setblocking(False)
    number = first.fileno()
    late = loop.create_task(loop.sock_recv(first, 10))
    await turns()
    first.close()
    far.close()
    second, far = socket.socketpair()
    with second, far:
        assert second.fileno() == number
        second.setblocking(False)
        task = loop.create_task(loop.sock_recv(second, 10))
        await turns()
        far.send(b"x")
        assert await soon(task) == b"x"
        await turns()
        late.cancel()
        with pytest.raises((OSError, asyncio.CancelledError)):
            await late

"""The sock_* coroutines."""
import asyncio
import os
import socket

import pytest
from support.loops import differs_from_asyncio
from support.net import BIG, LOOPBACK, Peer, attach, socket_pair, tcp_pair, unused_port
from support.protocols import Recorder
from support.waiting import quiet, soon, turns

pytestmark = pytest.mark.needs("sock_ops")


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

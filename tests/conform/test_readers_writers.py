"""add_reader and add_writer, which behave level-triggered in every mode."""
import asyncio
import contextlib
import os
import select
import socket

import pytest
from support.loops import differs_from_asyncio
from support.net import connected
from support.protocols import Recorder
from support.waiting import is_idle, quiet, turns, until


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    with near, far:
        yield near, far


@pytest.fixture
def pipe():
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    open_fds = {read_fd, write_fd}

    class Pipe:
        read, write = read_fd, write_fd

        @staticmethod
        def close(fd):
            open_fds.remove(fd)
            os.close(fd)

    yield Pipe
    for fd in open_fds:
        os.close(fd)


async def test_reader_is_called_when_there_is_something(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(100)))
    await quiet()
    assert got == []
    far.send(b"hello")
    await until(lambda: got)
    assert got == [b"hello"]
    loop.remove_reader(near)


async def test_reader_gets_its_arguments(loop, pair):
    near, far = pair
    got = []
    far.send(b"x")

    def on_read(*args):
        got.append(args)
        loop.remove_reader(near)

    loop.add_reader(near, on_read, 1, "two", None)
    await until(lambda: got)
    assert got == [(1, "two", None)]


async def test_add_returns_nothing(loop, pair):
    near, _ = pair
    assert loop.add_reader(near, print) is None
    assert loop.add_writer(near, int) is None
    loop.remove_reader(near)
    loop.remove_writer(near)


async def test_reader_that_does_not_read_is_called_again(loop, pair):
    near, far = pair
    called = []
    far.send(b"x")
    loop.add_reader(near, called.append, 1)
    await until(lambda: len(called) >= 5)
    loop.remove_reader(near)
    count = len(called)
    await quiet()
    assert len(called) == count


async def test_reader_that_reads_a_little_is_called_again(loop, pair):
    near, far = pair
    got = []
    far.send(b"0123456789")
    loop.add_reader(near, lambda: got.append(near.recv(1)))
    await until(lambda: len(got) == 10)
    assert b"".join(got) == b"0123456789"
    await quiet()
    assert len(got) == 10
    loop.remove_reader(near)


async def test_reader_sees_the_end_again_and_again(loop, pair):
    near, far = pair
    got = []
    far.send(b"x")
    far.close()
    loop.add_reader(near, lambda: got.append(near.recv(100)))
    await until(lambda: len(got) >= 4)
    loop.remove_reader(near)
    assert got[:3] == [b"x", b"", b""]


async def test_reader_added_when_data_wait_already(loop, pair):
    near, far = pair
    far.send(b"early")
    await quiet()
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(100)))
    await until(lambda: got)
    loop.remove_reader(near)


async def test_reader_added_again_with_unread_data(loop, pair):
    near, far = pair
    calls = []
    far.send(b"x")
    for i in range(5):
        loop.add_reader(near, calls.append, i)
        await until(lambda i=i: i in calls)
        loop.remove_reader(near)
    assert sorted(set(calls)) == [0, 1, 2, 3, 4]


async def test_second_reader_replaces_the_first(loop, pair):
    near, far = pair
    calls = []
    loop.add_reader(near, calls.append, "first")
    loop.add_reader(near, calls.append, "second")
    far.send(b"x")
    await until(lambda: calls)
    loop.remove_reader(near)
    assert "first" not in calls


async def test_reader_replaced_by_itself(loop, pair):
    near, far = pair
    calls = []

    def first():
        calls.append("first")
        loop.add_reader(near, second)

    def second():
        calls.append("second")
        loop.remove_reader(near)

    loop.add_reader(near, first)
    far.send(b"x")
    await until(lambda: "second" in calls)
    assert calls == ["first", "second"]


async def test_remove_tells_whether_there_was_one(loop, pair):
    near, _ = pair
    assert loop.remove_reader(near) is False
    assert loop.remove_writer(near) is False
    loop.add_reader(near, print)
    assert loop.remove_writer(near) is False
    assert loop.remove_reader(near) is True
    assert loop.remove_reader(near) is False
    loop.add_writer(near, int)
    assert loop.remove_reader(near) is False
    assert loop.remove_writer(near) is True
    assert loop.remove_writer(near) is False


async def test_descriptor_may_be_a_number_or_an_object(loop, pair):
    near, far = pair
    got = []
    far.send(b"x")
    loop.add_reader(near.fileno(), lambda: got.append(near.recv(1)))
    await until(lambda: got)
    assert loop.remove_reader(near) is True
    loop.add_reader(near, print)
    assert loop.remove_reader(near.fileno()) is True


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
@pytest.mark.parametrize("bad", [-1, "socket", object(), None, 1.5, b"1"])
async def test_what_is_no_descriptor_is_refused(loop, method, bad):
    with pytest.raises(ValueError):
        getattr(loop, method)(bad, print)


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_closed_descriptor_is_refused(loop, method):
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        getattr(loop, method)(fd, print)
    assert loop.remove_reader(fd) is False
    assert loop.remove_writer(fd) is False


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_closed_socket_is_refused(loop, method):
    sock = socket.socket()
    sock.close()
    with pytest.raises((ValueError, OSError)):
        getattr(loop, method)(sock, print)


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
async def test_regular_file_is_refused(loop, method, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("r+b") as file:
        with pytest.raises(PermissionError):
            getattr(loop, method)(file, print)
        # Nothing is left half registered.
        assert loop.remove_reader(file) is False
        assert loop.remove_writer(file) is False


async def test_writer_is_called_while_there_is_room(loop, pair):
    near, _ = pair
    calls = []
    loop.add_writer(near, calls.append, 1)
    await until(lambda: len(calls) >= 5)
    loop.remove_writer(near)
    count = len(calls)
    await quiet()
    assert len(calls) == count


async def test_writer_is_called_again_when_there_is_room_again(loop, pair):
    near, far = pair
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65536)
    calls = []
    loop.add_writer(near, calls.append, 1)
    await quiet()
    assert calls == []
    with contextlib.suppress(BlockingIOError):
        while True:
            far.recv(1 << 20)
    await until(lambda: calls)
    loop.remove_writer(near)


async def test_reader_and_writer_of_one_descriptor(loop, pair):
    near, far = pair
    reads, writes = [], []
    loop.add_reader(near, lambda: reads.append(near.recv(100)))
    loop.add_writer(near, lambda: writes.append(1))
    far.send(b"one")
    await until(lambda: reads and len(writes) > 2)
    assert loop.remove_writer(near) is True
    count = len(writes)
    far.send(b"two")
    await until(lambda: len(reads) == 2)
    assert len(writes) == count
    loop.add_writer(near, lambda: writes.append(1))
    await until(lambda: len(writes) > count)
    assert loop.remove_reader(near) is True
    far.send(b"three")
    count = len(writes)
    await until(lambda: len(writes) > count)
    assert len(reads) == 2
    loop.remove_writer(near)


async def test_reader_that_removes_the_writer_of_the_same_event(loop, pair):
    near, far = pair
    calls = []
    far.send(b"x")
    await quiet()

    def on_read():
        calls.append("read")
        loop.remove_writer(near)
        loop.remove_reader(near)

    loop.add_reader(near, on_read)
    loop.add_writer(near, calls.append, "write")
    await until(lambda: "read" in calls)
    count = len(calls)
    await quiet()
    assert len(calls) == count


async def test_two_descriptors_of_one_socket(loop, pair):
    near, far = pair
    with near.dup() as twin:
        got = []
        loop.add_reader(near, got.append, "near")
        loop.add_reader(twin, got.append, "twin")
        far.send(b"x")
        await until(lambda: {"near", "twin"} <= set(got))
        loop.remove_reader(near)
        loop.remove_reader(twin)


async def test_closed_descriptor_of_which_a_duplicate_lives_on(loop, pair):
    """After the removal nothing is reported, and the loop does not spin."""
    near, far = pair
    got = []
    doomed = near.dup()
    loop.add_reader(doomed, got.append, 1)
    loop.remove_reader(doomed)
    doomed.close()
    far.send(b"x")
    assert await is_idle(loop, 0.1)
    assert got == []


async def test_number_used_again_after_remove_and_close(loop):
    for _ in range(20):
        near, far = socket.socketpair()
        near.setblocking(False)
        got = []
        loop.add_reader(near, lambda near=near, got=got: got.append(near.recv(10)))
        far.send(b"x")
        await until(lambda got=got: got)
        loop.remove_reader(near)
        near.close()
        far.close()


@differs_from_asyncio("its selector goes on believing that the closed descriptor is registered")
async def test_number_used_again_after_close_without_remove(loop, pipe):
    loop.add_reader(pipe.read, print)
    number = pipe.read
    pipe.close(number)
    near, far = socket.socketpair()
    try:
        assert near.fileno() == number
        near.setblocking(False)
        got = []
        loop.add_reader(near, lambda: got.append(near.recv(10)))
        far.send(b"x")
        await until(lambda: got)
        assert loop.remove_reader(near) is True
    finally:
        near.close()
        far.close()


@differs_from_asyncio("it does not notice that the descriptor is closed")
@pytest.mark.parametrize("duplicated", [False, True])
async def test_number_used_again_after_a_refused_add(loop, pipe, duplicated):
    loop.add_reader(pipe.read, print)
    number = pipe.read
    duplicate = os.dup(number) if duplicated else None
    pipe.close(number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop.add_reader(number, print)
    if duplicated:
        os.write(pipe.write, b"x")
    assert await is_idle(loop, 0.1)
    near, far = socket.socketpair()
    with near, far:
        assert near.fileno() == number
        near.setblocking(False)
        got = []
        loop.add_reader(near, lambda: got.append(near.recv(10)))
        far.send(b"x")
        await until(lambda: got)
        assert loop.remove_reader(near) is True
    if duplicated:
        os.close(duplicate)


@differs_from_asyncio("its selector goes on believing that the closed descriptor is registered")
async def test_duplicate_of_the_last_owner_of_a_number(loop, pair):
    """It lives on in the kernel's set, but its events are not taken for the next owner's."""
    near, far = pair
    doomed = near.dup()
    number = doomed.fileno()
    loop.add_reader(doomed, print)
    doomed.close()
    next_near, next_far = socket.socketpair()
    with next_near, next_far:
        assert next_near.fileno() == number
        got = []
        loop.add_reader(next_near, got.append, 1)
        far.send(b"not for the next one")
        assert await is_idle(loop, 0.1)
        assert got == []
        next_far.send(b"x")
        await until(lambda: got)
        assert loop.remove_reader(next_near) is True


async def test_close_before_remove_is_forgiven(loop, pipe):
    loop.add_reader(pipe.read, print)
    number = pipe.read
    pipe.close(number)
    assert loop.remove_reader(number) is True
    assert loop.remove_reader(number) is False


@pytest.mark.parametrize("direction", ["reader", "writer"])
async def test_closed_socket_object_is_still_known(loop, direction):
    """AnyIO closes its Unix sockets before it removes them."""
    near, far = socket.socketpair()
    with far:
        near.setblocking(False)
        getattr(loop, f"add_{direction}")(near, print)
        near.close()
        assert getattr(loop, f"remove_{direction}")(near) is True
        with pytest.raises(ValueError):     # forgotten
            getattr(loop, f"remove_{direction}")(near)


@differs_from_asyncio("removing the first handler fails, and makes the second unknown")
async def test_closed_socket_object_with_two_handlers(loop):
    near, far = socket.socketpair()
    with far:
        near.setblocking(False)
        loop.add_reader(near, print)
        loop.add_writer(near, print)
        near.close()
        assert loop.remove_reader(near) is True
        assert loop.remove_writer(near) is True
        with pytest.raises(ValueError):
            loop.remove_writer(near)


async def test_number_of_a_closed_socket_object_is_free_after_its_removal(loop):
    near, far = socket.socketpair()
    number = near.fileno()
    near.setblocking(False)
    loop.add_reader(near, print)
    near.close()
    loop.remove_reader(near)
    again, other = socket.socketpair()
    with far, again, other:
        assert again.fileno() == number
        again.setblocking(False)
        got = []
        loop.add_reader(again, lambda: got.append(again.recv(10)))
        other.send(b"x")
        await until(lambda: got)
        assert loop.remove_reader(again) is True


def test_stale_event_does_not_reach_the_next_owner_of_the_number(loop):
    """Two descriptors are ready in one batch; the first callback replaces the second one."""
    pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(2)]
    wrong, opened = [], []

    def on_read(mine, other):
        loop.remove_reader(mine[0])
        loop.remove_reader(other[0])
        number = other[0]
        os.close(number)
        opened.extend(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
        assert opened[0] == number
        loop.add_reader(number, wrong.append, number)     # nothing to read there
        loop.call_later(0.01, loop.stop)
        pipes.remove(other)
        opened.append(other[1])

    first, second = pipes
    loop.add_reader(first[0], on_read, first, second)
    loop.add_reader(second[0], on_read, second, first)
    os.write(first[1], b"x")
    os.write(second[1], b"x")
    loop.run_forever()
    assert wrong == []
    loop.remove_reader(opened[0])
    for fd in (*pipes[0], *opened):
        os.close(fd)


async def test_callback_that_raises_is_reported_and_called_again(loop, pair, unhandled):
    near, far = pair
    calls = []

    def on_read():
        calls.append(1)
        if len(calls) == 3:
            near.recv(100)
            loop.remove_reader(near)
        raise ZeroDivisionError

    loop.add_reader(near, on_read)
    far.send(b"x")
    await until(lambda: len(calls) == 3)
    await turns()
    contexts = unhandled.take()
    assert len(contexts) == 3
    assert all(isinstance(context["exception"], ZeroDivisionError) for context in contexts)


async def test_one_callback_that_raises_does_not_harm_others(loop, pair, pipe, unhandled):
    near, far = pair
    got = []

    def fail():
        loop.remove_reader(near)
        raise ZeroDivisionError

    loop.add_reader(near, fail)
    loop.add_reader(pipe.read, lambda: got.append(os.read(pipe.read, 10)))
    far.send(b"x")
    os.write(pipe.write, b"y")
    await until(lambda: got and len(unhandled))
    loop.remove_reader(pipe.read)
    unhandled.take_one()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_a_reader_leaves_the_run_and_keeps_the_reader(loop, pair, error):
    near, far = pair
    calls = []

    def on_read():
        calls.append(1)
        if len(calls) == 1:
            raise error
        loop.stop()

    loop.add_reader(near, on_read)
    far.send(b"x")
    with pytest.raises(error):
        loop.run_forever()
    loop.run_forever()
    assert len(calls) == 2
    loop.remove_reader(near)


async def test_reader_on_an_eventfd(loop):
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    got = []
    loop.add_reader(fd, got.append, 1)
    await quiet()
    assert got == []
    os.eventfd_write(fd, 1)
    await until(lambda: len(got) >= 3)      # not read: still readable
    os.eventfd_read(fd)
    await turns()
    count = len(got)
    await quiet()
    assert len(got) <= count + 1
    os.eventfd_write(fd, 5)
    await until(lambda: len(got) > count + 1)
    loop.remove_reader(fd)
    os.close(fd)


async def test_reader_on_an_epoll_descriptor(loop, pipe):
    with select.epoll() as inner:
        inner.register(pipe.read, select.EPOLLIN)
        got = []
        loop.add_reader(inner, got.append, 1)
        await quiet()
        assert got == []
        os.write(pipe.write, b"x")
        await until(lambda: len(got) >= 3)
        os.read(pipe.read, 10)
        await turns()
        count = len(got)
        await quiet()
        assert len(got) <= count + 1
        loop.remove_reader(inner)


async def test_pipe_reader_is_told_of_the_end(loop, pipe):
    got = []

    def on_read():
        got.append(os.read(pipe.read, 100))
        if not got[-1]:
            loop.remove_reader(pipe.read)

    loop.add_reader(pipe.read, on_read)
    os.write(pipe.write, b"last")
    pipe.close(pipe.write)
    await until(lambda: len(got) == 2)
    assert got == [b"last", b""]


async def test_pipe_writer_is_told_that_nobody_reads(loop, pipe):
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe.write, b"x" * 4096)
    calls = []
    loop.add_writer(pipe.write, calls.append, 1)
    await quiet()
    assert calls == []
    pipe.close(pipe.read)
    await until(lambda: calls)
    loop.remove_writer(pipe.write)


async def test_connecting_socket_becomes_writable(loop):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        sock.setblocking(False)
        assert sock.connect_ex(listener.getsockname()) in (0, 115)
        calls = []
        loop.add_writer(sock, calls.append, 1)
        await until(lambda: calls)
        loop.remove_writer(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


async def test_listening_socket_becomes_readable(loop):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        accepted = []
        loop.add_reader(listener, lambda: accepted.append(listener.accept()[0]))
        clients = [socket.create_connection(listener.getsockname()) for _ in range(5)]
        await until(lambda: len(accepted) == 5)
        loop.remove_reader(listener)
        for sock in (*clients, *accepted):
            sock.close()


@pytest.mark.parametrize("method", ["add_reader", "add_writer", "remove_reader", "remove_writer"])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_descriptor_of_a_transport_is_refused(loop, kind, method):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        fd = transport.get_extra_info("socket").fileno()
        args = (print,) if method.startswith("add") else ()
        with pytest.raises(RuntimeError, match="is used by transport"):
            getattr(loop, method)(fd, *args)
        await peer.send(b"still served")
        assert await protocol.until_received(12) == b"still served"


async def test_descriptor_of_a_closed_transport_is_free_again(loop):
    async with connected(loop, "unix", Recorder) as (transport, protocol, _):
        number = transport.get_extra_info("socket").fileno()
        transport.abort()
        await protocol.until_lost()
        await turns()
        near, far = socket.socketpair()
        try:
            assert number in (near.fileno(), far.fileno())
            got = []
            for sock in (near, far):
                loop.add_writer(sock, got.append, sock)
            await until(lambda: set(got) == {near, far})
            for sock in (near, far):
                assert loop.remove_writer(sock) is True
        finally:
            near.close()
            far.close()


async def test_more_ready_descriptors_than_one_poll_returns(loop):
    """All get their turn, also while the first ones stay ready."""
    fds = [os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(300)]
    called = set()
    for fd in fds:
        loop.add_reader(fd, called.add, fd)
    await until(lambda: len(called) == len(fds))
    for fd in fds:
        loop.remove_reader(fd)
        os.close(fd)


def test_closed_loop_has_nothing_to_remove(loop, pair):
    near, _ = pair
    loop.add_reader(near, print)
    loop.close()
    assert loop.remove_reader(near) is False
    assert loop.remove_writer(near) is False


def test_closing_the_loop_leaves_the_descriptor_open(loop, pair):
    near, far = pair
    loop.add_reader(near, print)
    loop.add_writer(near, print)
    loop.close()
    far.send(b"x")
    assert near.recv(10) == b"x"


def test_readers_survive_between_runs(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(10)))
    loop.run_until_complete(turns())
    far.send(b"x")

    async def main():
        await until(lambda: got)

    loop.run_until_complete(main())
    loop.remove_reader(near)


async def test_readers_are_served_under_an_endless_stream_of_callbacks(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(10)))
    far.send(b"x")
    for _ in range(100_000):
        await asyncio.sleep(0)
        if got:
            break
    assert got == [b"x"]
    loop.remove_reader(near)

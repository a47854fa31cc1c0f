"""add_reader, add_writer and their opposites."""
import contextvars
import os
import select
import socket

from support.net import unix_pair
from support.waiting import quiet, turns, until

from surface.checks import equal, raises
from surface.ends import stream
from surface.rows import subject

row = subject("Readiness of descriptors")
variable = contextvars.ContextVar("variable", default="unset")


class pair:
    """Two connected sockets; the loop is told to forget the first at the end."""

    def __init__(self, loop):
        self.loop = loop

    def __enter__(self):
        self.socks = unix_pair()
        return self.socks

    def __exit__(self, *exc_info):
        if self.socks[0].fileno() >= 0:
            self.loop.remove_reader(self.socks[0])
            self.loop.remove_writer(self.socks[0])
        for sock in self.socks:
            sock.close()


@row("add_reader(fd=number or object, callback=, *args=), remove_reader(fd=)")
async def reader(loop):
    with pair(loop) as (near, far):
        for fd in (near, near.fileno()):
            came = loop.create_future()

            def read(*args, came=came):
                near.recv(10)
                came.set_result(args)

            loop.add_reader(fd, read, 1, 2)
            far.send(b"x")
            equal(await came, (1, 2))
            equal(loop.remove_reader(fd), True)
            equal(loop.remove_reader(fd), False)
            far.send(b"x")
            await quiet()
            near.recv(10)


@row("add_writer(fd=, callback=, *args=), remove_writer(fd=)")
async def writer(loop):
    with pair(loop) as (near, _):
        for fd in (near, near.fileno()):
            came = []
            loop.add_writer(fd, came.append, 1)
            await until(lambda came=came: came, "the writer")
            equal(loop.remove_writer(fd), True)
            equal(loop.remove_writer(fd), False)
            came.clear()
            await quiet()
            equal(came, [])


@row("a reader that does not read is called again and again")
async def level_triggered(loop):
    with pair(loop) as (near, far):
        came = []
        loop.add_reader(near, came.append, 1)
        far.send(b"x")
        await until(lambda: len(came) > 5, "six calls")


@row("a second reader replaces the first")
async def replaced(loop):
    with pair(loop) as (near, far):
        came = []
        loop.add_reader(near, came.append, 1)
        loop.add_reader(near, came.append, 2)
        far.send(b"x")
        await until(lambda: came, "the reader")
        equal(set(came), {2})


@row("reader and writer of one descriptor")
async def both(loop):
    with pair(loop) as (near, far):
        came = []
        loop.add_reader(near, came.append, "read")
        loop.add_writer(near, came.append, "write")
        far.send(b"x")
        await until(lambda: {"read", "write"} <= set(came), "both")
        loop.remove_writer(near)
        await turns()
        came.clear()
        await until(lambda: came, "the reader")
        equal(set(came), {"read"})


@row("callbacks run in the context of registration")
async def context(loop):
    with pair(loop) as (near, far):
        seen = []
        variable.set("registered")
        loop.add_reader(near, lambda: seen.append(variable.get()))
        variable.set("later")
        far.send(b"x")
        await until(lambda: seen, "the reader")
        equal(seen[0], "registered")


@row("a number that is used again after close()")
async def used_again(loop):
    with pair(loop) as (near, _):
        loop.add_reader(near, int)
        number = near.fileno()
        loop.remove_reader(near)
        near.close()
        with pair(loop) as (other, far):
            equal(other.fileno(), number)
            came = []
            loop.add_reader(other, came.append, 1)
            far.send(b"x")
            await until(lambda: came, "the reader")


@row("a number that is used again without remove_reader()")
async def not_removed(loop):
    with pair(loop) as (near, _):
        stale, came = [], []
        loop.add_reader(near, stale.append, 1)
        near.close()
        with pair(loop) as (other, far):
            loop.add_reader(other, came.append, 1)
            far.send(b"x")
            await until(lambda: came, "the reader")
        equal(stale, [])


@row("a regular file is refused with PermissionError")
async def regular_file(loop, folder):
    (folder / "file").touch()
    with (folder / "file").open("rb") as file, raises(PermissionError):
        loop.add_reader(file, int)


@row("what is no descriptor is refused with ValueError")
async def no_descriptor(loop):
    for fd in (-1, "text", None):
        with raises(ValueError):
            loop.add_reader(fd, int)
        with raises(ValueError):
            loop.add_writer(fd, int)


@row("the descriptor of a transport is refused with RuntimeError")
async def of_a_transport(loop):
    async with stream(loop, "TCP") as (transport, _, _):
        fd = transport.get_extra_info("socket").fileno()
        for method, args in ((loop.add_reader, (int,)), (loop.add_writer, (int,)),
                             (loop.remove_reader, ()), (loop.remove_writer, ())):
            with raises(RuntimeError):
                method(fd, *args)


@row("an eventfd, a listening socket, an epoll descriptor")
async def kinds(loop):
    event = os.eventfd(0, os.EFD_NONBLOCK)
    poller = select.epoll()
    poller.register(event, select.EPOLLIN)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        came = []
        for name, thing in (("event", event), ("epoll", poller), ("listener", listening)):
            loop.add_reader(thing, came.append, name)
        with socket.create_connection(listening.getsockname()):
            os.eventfd_write(event, 1)
            await until(lambda: set(came) == {"event", "epoll", "listener"}, "all three")
        for thing in (event, poller, listening):
            loop.remove_reader(thing)
    poller.close()
    os.close(event)


@row("a reader that raises is reported and called again")
async def raising(loop):
    reports = []

    def fail():
        raise LookupError("mine")

    loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
    with pair(loop) as (near, far):
        loop.add_reader(near, fail)
        far.send(b"x")
        await until(lambda: len(reports) > 2, "three reports")
    equal({type(exc) for exc in reports}, {LookupError})


@row("the reader of a pipe is told of the end, the writer of a broken pipe too")
async def ends(loop):
    for add, remove, watched in ((loop.add_reader, loop.remove_reader, 0),
                                 (loop.add_writer, loop.remove_writer, 1)):
        pipe = os.pipe()
        came = []
        os.close(pipe[1 - watched])
        add(pipe[watched], came.append, 1)
        await until(lambda came=came: came, "the callback")
        remove(pipe[watched])
        os.close(pipe[watched])


@row("100 descriptors ready at once")
async def many(loop):
    socks = [socket.socketpair() for _ in range(100)]
    came = set()
    for number, (near, far) in enumerate(socks):
        loop.add_reader(near, came.add, number)
        far.send(b"x")
    await until(lambda: len(came) == 100, "all of them")
    for near, far in socks:
        loop.remove_reader(near)
        near.close()
        far.close()

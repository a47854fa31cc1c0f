"""sock_recv and the other methods that take a socket."""
import asyncio
import contextlib
import socket
import threading

from support.net import LOOPBACK, tcp_pair, unix_pair, unused_port
from support.protocols import Recorder
from support.waiting import quiet, soon, turns

from surface.checks import equal, refused, within
from surface.rows import subject

row = subject("Socket operations")


@contextlib.contextmanager
def pair(make=unix_pair):
    near, far = make()
    with near, far:
        yield near, far


@contextlib.contextmanager
def datagram_sockets():
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(2):
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.bind((LOOPBACK, 0))
            sock.setblocking(False)
            socks.append(sock)
        yield socks


async def later(function, *args):
    """Call a function when whoever waits has begun to wait."""
    await quiet()
    return function(*args)


async def waiting(coroutine, function, *args):
    """The result of a coroutine that has to wait for what a function does."""
    result, _ = await soon(asyncio.gather(coroutine, later(function, *args)))
    return result


@row("sock_recv(sock=, nbytes=)")
async def sock_recv(loop):
    with pair() as (near, far):
        far.send(b"hello")
        equal(await soon(loop.sock_recv(near, 3)), b"hel")
        equal(await soon(loop.sock_recv(near, 30)), b"lo")
        equal(await waiting(loop.sock_recv(near, 30), far.send, b"later"), b"later")
        equal(await waiting(loop.sock_recv(near, 30), far.close), b"")


@row("sock_recv_into(sock=, buf=)")
async def sock_recv_into(loop):
    with pair() as (near, far):
        buffer = bytearray(8)
        far.send(b"hello")
        equal(await soon(loop.sock_recv_into(near, memoryview(buffer)[1:4])), 3)
        equal(bytes(buffer), b"\0hel\0\0\0\0")
        equal(await soon(loop.sock_recv_into(near, buffer)), 2)
        equal(await waiting(loop.sock_recv_into(near, buffer), far.send, b"later"), 5)
        equal(bytes(buffer[:5]), b"later")


@row("sock_recvfrom(sock=, bufsize=)")
async def sock_recvfrom(loop):
    with datagram_sockets() as (near, far):
        address = far.getsockname()
        far.sendto(b"hello", near.getsockname())
        equal(await soon(loop.sock_recvfrom(near, 3)), (b"hel", address))
        equal(await waiting(loop.sock_recvfrom(near, 30), far.sendto, b"", near.getsockname()),
              (b"", address))


@row("sock_recvfrom_into(sock=, buf=, nbytes=)")
async def sock_recvfrom_into(loop):
    with datagram_sockets() as (near, far):
        buffer, address = bytearray(8), far.getsockname()
        far.sendto(b"hello", near.getsockname())
        equal(await soon(loop.sock_recvfrom_into(near, buffer)), (5, address))
        equal(bytes(buffer[:5]), b"hello")
        equal(await waiting(loop.sock_recvfrom_into(near, buffer, 2), far.sendto, b"later",
                            near.getsockname()), (2, address))
        equal(bytes(buffer[:5]), b"lallo")


@row("sock_sendto(sock=, data=, address=)")
async def sock_sendto(loop):
    with datagram_sockets() as (near, far):
        equal(await soon(loop.sock_sendto(near, b"hello", far.getsockname())), 5)
        equal(far.recvfrom(10), (b"hello", near.getsockname()))


@row("sock_sendall(sock=, data=): 3 MB")
async def sock_sendall(loop):
    for make in (unix_pair, tcp_pair):
        with pair(make) as (near, far):
            data = bytes(range(250)) * 12_000
            received = bytearray()

            async def read(far=far, received=received):
                while len(received) < 3_000_000:
                    received.extend(await loop.sock_recv(far, 1 << 18))

            result, _ = await soon(asyncio.gather(loop.sock_sendall(near, data), read()))
            equal(result, None)
            assert received == data, "other bytes"


@row("sock_connect(sock=, address=), sock_accept(sock=)")
async def connect_and_accept(loop):
    with socket.create_server((LOOPBACK, 0)) as listening, socket.socket() as near:
        listening.setblocking(False)
        near.setblocking(False)
        (far, address), _ = await soon(asyncio.gather(
            loop.sock_accept(listening), loop.sock_connect(near, listening.getsockname())))
        with far:
            equal(address, near.getsockname())
            equal(far.gettimeout(), 0)
            await loop.sock_sendall(near, b"x")
            equal(await soon(loop.sock_recv(far, 1)), b"x")


@row("sock_connect() by name")
async def by_name(loop):
    with socket.create_server((LOOPBACK, 0)) as listening, socket.socket() as near:
        near.setblocking(False)
        await soon(loop.sock_connect(near, ("localhost", listening.getsockname()[1])))
        equal(near.getpeername(), listening.getsockname())


@row("sock_connect() of a unix socket, by path and by abstract name")
async def unix(loop, folder):
    for name in (str(folder / "socket"), "\0surface-sock-ops"):
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as near:
            listening.bind(name)
            listening.listen()
            near.setblocking(False)
            await soon(loop.sock_connect(near, name))
            listening.accept()[0].close()


@row("sock_connect() refused is a ConnectionRefusedError")
async def connection_refused(loop):
    with socket.socket() as near:
        near.setblocking(False)
        await refused(loop.sock_connect(near, (LOOPBACK, unused_port())), ConnectionRefusedError)


@row("a cancelled sock_recv() loses no data")
async def cancelled_recv(loop):
    with pair() as (near, far):
        task = loop.create_task(loop.sock_recv(near, 10))
        await quiet()
        far.send(b"x")
        task.cancel()
        try:
            data = await task
        except asyncio.CancelledError:
            data = await soon(loop.sock_recv(near, 10))
        equal(data, b"x")


@row("a cancelled sock_accept() loses no connection")
async def cancelled_accept(loop):
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.setblocking(False)
        task = loop.create_task(loop.sock_accept(listening))
        await quiet()
        with socket.create_connection(listening.getsockname()) as client:
            task.cancel()
            try:
                sock, address = await task
            except asyncio.CancelledError:
                sock, address = await soon(loop.sock_accept(listening))
            sock.close()
            equal(address, client.getsockname())


@row("sock_recv() and sock_sendall() of one socket at once")
async def both_directions(loop):
    with pair() as (near, far):
        data = b"x" * 500_000
        receiving = loop.create_task(loop.sock_recv(near, 10))
        sending = loop.create_task(loop.sock_sendall(near, data))
        await quiet()
        far.send(b"y")
        equal(await soon(receiving), b"y")
        received = 0
        while received < len(data):
            received += len(await soon(loop.sock_recv(far, 1 << 18)))
        await soon(sending)


@row("a socket number that is used again")
async def used_again(loop):
    for _ in range(3):
        with pair() as (near, far):
            equal(await waiting(loop.sock_recv(near, 10), far.send, b"x"), b"x")


@row("then create_connection(sock=) of a socket connected by sock_connect()")
async def handed_over(loop):
    with socket.create_server((LOOPBACK, 0)) as listening:
        near = socket.socket()
        near.setblocking(False)
        await soon(loop.sock_connect(near, listening.getsockname()))
        far, _ = listening.accept()
        _transport, protocol = await loop.create_connection(Recorder, sock=near)
        far.send(b"x")
        equal(await protocol.until_received(1), b"x")
        far.close()
        await protocol.until_lost()
        await turns(4)


@row("debug mode: a blocking socket is refused with ValueError")
async def blocking(loop):
    loop.set_debug(True)
    with pair() as (near, _):
        near.setblocking(True)
        for coroutine in (loop.sock_recv(near, 1), loop.sock_sendall(near, b"x")):
            await refused(coroutine, ValueError)
    loop.set_debug(False)


@row("sock_connect() to an address needs no thread")
async def no_thread(loop):
    with (socket.create_server((LOOPBACK, 0)) as listening, socket.socket() as near,
          within(1)):
        near.setblocking(False)
        await loop.sock_connect(near, listening.getsockname())
        equal(threading.active_count(), 1, "threads")


@row("a datagram socket that sock_connect() has connected")
async def connected_datagrams(loop):
    with datagram_sockets() as (near, far):
        await soon(loop.sock_connect(near, far.getsockname()))
        await soon(loop.sock_sendall(near, b"x"))
        equal(far.recv(10), b"x")

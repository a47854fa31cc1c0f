"""Connected sockets, and the far end of a connection driven by plain system calls."""
import asyncio
import contextlib
import itertools
import socket
import struct

from support.waiting import POLL_S, until

LOOPBACK = "127.0.0.1"
STREAM_KINDS = ("tcp", "unix")
# Fixed, as the kernel lets the buffers of a TCP connection grow to many megabytes otherwise.
SEND_BUFFER = 65536
# Several segments of the loopback device: with less, TCP waits for its timers now and then.
RECEIVE_BUFFER = 262144
BIG = 1 << 20           # more than a connection takes whose far end does not read


_addresses = itertools.count(1)


def tcp_pair():
    # Of all the loopback addresses a new one each time: with thousands of closed connections of
    # the same one the kernel searches long for a free port.
    number = next(_addresses) % 0xffff
    with socket.create_server((f"127.1.{number >> 8}.{number & 0xff}", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _prepared(near, far)


def unix_pair():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return _prepared(near, far)


def _prepared(near, far):
    for sock in (near, far):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return near, far


def socket_pair(kind):
    return tcp_pair() if kind == "tcp" else unix_pair()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def unused_port():
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return sock.getsockname()[1]


def make_reset(sock):
    """Have close() send a reset instead of a FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Peer:
    """The far end: a non-blocking socket that no loop watches."""

    def __init__(self, sock):
        sock.setblocking(False)
        self.sock = sock

    async def send(self, data):
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view):]
            except BlockingIOError:
                await asyncio.sleep(POLL_S)

    async def recv(self, size=65536):
        """Some bytes, or b"" at the end of the stream."""
        got = []

        def try_once():
            with contextlib.suppress(BlockingIOError):
                got.append(self.sock.recv(size))
            return got

        await until(try_once, "data from the transport")
        return got[0]

    async def recv_exactly(self, size):
        data = bytearray()
        while len(data) < size:
            some = await self.recv(size - len(data))
            assert some, f"end of stream after {len(data)} of {size} bytes"
            data += some
        return bytes(data)

    async def recv_all(self):
        """Everything until the end of the stream."""
        data = bytearray()
        while some := await self.recv():
            data += some
        return bytes(data)

    def recv_now(self, size=1 << 20):
        """What is there at this moment."""
        data = bytearray()
        with contextlib.suppress(BlockingIOError):
            while len(data) < size and (some := self.sock.recv(size - len(data))):
                data += some
        return bytes(data)

    def reset(self):
        make_reset(self.sock)
        self.sock.close()

    def close(self):
        self.sock.close()


async def attach(loop, sock, factory):
    """Make a transport for a connected socket; its protocol comes from `factory`."""
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_connection(factory, sock=sock)
    return await loop.create_connection(factory, sock=sock)


@contextlib.asynccontextmanager
async def connected(loop, kind, factory, *, send_buffer=None):
    """A transport on one end of a connection, the plain far end, and the protocol."""
    near, far = socket_pair(kind)
    if send_buffer is not None:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    peer = Peer(far)
    transport, protocol = await attach(loop, near, factory)
    try:
        yield transport, protocol, peer
    finally:
        if near.fileno() != -1:
            transport.abort()
        peer.close()
        await until(lambda: near.fileno() == -1, "the transport to close its socket")

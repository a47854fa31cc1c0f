"""Datagram endpoints and sockets, and a protocol that notes what its endpoint is told."""
import asyncio
import contextlib
import socket

from support.net import LOOPBACK
from support.protocols import _Recording


class Datagrams(_Recording, asyncio.DatagramProtocol):
    """A datagram protocol that notes what it is told."""

    def __init__(self):
        super().__init__()
        self.senders = []

    @property
    def datagrams(self):
        return [call[1] for call in self.calls if call[0] == "datagram_received"]

    @property
    def errors(self):
        return [call[1] for call in self.calls if call[0] == "error_received"]

    def datagram_received(self, data, addr):
        self.senders.append(addr)
        self.note("datagram_received", data)

    def error_received(self, exc):
        self.note("error_received", exc)


@contextlib.asynccontextmanager
async def endpoint(loop, sock=None, factory=Datagrams, **options):
    """An endpoint, over `sock` or made by the loop, and its protocol."""
    transport, protocol = await loop.create_datagram_endpoint(factory, sock=sock, **options)
    try:
        yield transport, protocol
    finally:
        if not protocol.count("connection_lost"):
            transport.abort()
        await protocol.until_lost()


@contextlib.contextmanager
def bound_sockets(folder):
    """A function that makes non-blocking sockets with an address; they are closed at the end."""
    made = []

    def make(family="udp"):
        if family == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            sock.bind(str(folder / f"{len(made)}.sock"))
        elif family == "udp6":
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.bind(("::1", 0))
        else:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind((LOOPBACK, 0))
        sock.setblocking(False)
        made.append(sock)
        return sock

    try:
        yield make
    finally:
        for sock in made:
            sock.close()


def unused_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        return sock.getsockname()


async def take(peer, count):
    """The next `count` datagrams that reached a peer."""
    return [await peer.recv() for _ in range(count)]

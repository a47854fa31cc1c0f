"""Transports of each kind with their far ends, and servers with their clients."""
import asyncio
import contextlib
import socket

from support.net import LOOPBACK, Peer, tcp_pair, unix_pair
from support.protocols import Recorder
from support.tls import TLSPeer, client_context, server_context
from support.waiting import POLL_S, soon, turns

from surface.checks import within

STREAMS = ("TCP", "Unix", "TLS")
PLAIN = ("TCP", "Unix")
# A rival that does not tell of the end shall not hide what the row has found.
GOODBYE_S = 1.0


async def gone(transport, protocol):
    """End a connection, and wait until its protocol knows."""
    recorded = isinstance(getattr(protocol, "calls", None), list)
    if not (recorded and protocol.count("connection_lost")):
        transport.abort()
    if recorded:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.until_lost(), GOODBYE_S)
    await turns(4)


@contextlib.asynccontextmanager
async def stream(loop, end, factory=Recorder):
    """A transport of this kind, its protocol, and the far end."""
    near, far = unix_pair() if end == "Unix" else tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True) if end == "TLS" else Peer(far)
    connecting = connect(loop, end, near, factory)
    if end == "TLS":
        (transport, protocol), _ = await soon(asyncio.gather(connecting, peer.handshake()))
    else:
        transport, protocol = await soon(connecting)
    try:
        yield transport, protocol, peer
    finally:
        await gone(transport, protocol)
        peer.close()
        near.close()


async def connect(loop, end, sock, factory):
    if end == "Unix":
        return await loop.create_unix_connection(factory, sock=sock)
    if end == "TLS":
        return await loop.create_connection(
            factory, sock=sock, ssl=client_context(), server_hostname="localhost")
    return await loop.create_connection(factory, sock=sock)


async def farewell_to_silence(transport, protocol):
    """Close a TLS transport whose peer does not answer; it must not wait the usual 30 s."""
    with within(1, "the farewell"):
        transport.close()
        await protocol.until_lost()
    await turns(4)


class Clients:
    """The server's protocols, one for each connection."""

    def __init__(self, factory):
        self.factory = factory
        self.protocols = []

    def __call__(self):
        self.protocols.append(self.factory())
        return self.protocols[-1]

    async def accepted(self, count=1):
        """The protocol of the latest of so many accepted connections."""
        async with asyncio.timeout(2):
            while sum(p.transport is not None for p in self.protocols) < count:
                await asyncio.sleep(POLL_S)
        return self.protocols[-1]


@contextlib.asynccontextmanager
async def serving(loop, factory=Recorder, host=LOOPBACK, port=0, **options):
    """A TCP server and its `Clients`."""
    clients = Clients(factory)
    server = await loop.create_server(clients, host, port, **options)
    async with ended(server, clients):
        yield server, clients


@contextlib.asynccontextmanager
async def ended(server, clients):
    """A server that is gone afterwards, with its connections."""
    try:
        yield
    finally:
        server.close()
        for protocol in clients.protocols:
            if getattr(protocol, "transport", None) is not None:
                await gone(protocol.transport, protocol)
        await turns(4)


def port_of(server):
    return server.sockets[0].getsockname()[1]


def dial(server, timeout=2.0):
    """A plain blocking client of a TCP server, connected."""
    address = server.sockets[0].getsockname()
    return socket.create_connection(address[:2], timeout=timeout)


@contextlib.contextmanager
def silent_address():
    """An address that answers nobody: its queue of connections is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()


@contextlib.contextmanager
def listener(host=LOOPBACK, family=socket.AF_INET):
    """A listening socket that no loop watches."""
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        sock.listen(10)
        sock.settimeout(2)
        yield sock


def fill(transport, write=None):
    """Write 1 MiB at a time until some of it is queued; what was written.

    The kernel takes less than that of a peer that does not read. asyncio's TLS hands the first
    such write to the transport below, and does not count it.
    """
    data, written = bytes(range(256)) * 4096, b""
    while not transport.get_write_buffer_size():
        assert len(written) < 1 << 22, "nothing is queued"
        (write or transport.write)(data)
        written += data
    return written

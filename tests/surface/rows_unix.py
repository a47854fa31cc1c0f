"""create_unix_connection and create_unix_server."""
import asyncio
import contextlib
import os
import socket
import ssl
import struct
from pathlib import Path

from support.net import Peer, unix_pair
from support.protocols import Recorder
from support.tls import TLSPeer, client_context, server_context
from support.waiting import soon, turns

from surface.checks import equal, raises, refused
from surface.ends import Clients, ended, farewell_to_silence, gone
from surface.rows import subject

row = subject("Unix sockets")


@contextlib.asynccontextmanager
async def serving(loop, path, **options):
    """A server, and the protocols of its clients."""
    clients = Clients(Recorder)
    server = await loop.create_unix_server(clients, path, **options)
    async with ended(server, clients):
        yield server, clients


async def talk(loop, clients, path, **options):
    """Connect, send a byte, and end the connection."""
    transport, protocol = await loop.create_unix_connection(Recorder, path, **options)
    transport.write(b"x")
    client = await clients.accepted(len(clients.protocols) or 1)
    equal(await client.until_received(1), b"x")
    found = transport.get_extra_info("peername")
    await gone(transport, protocol)
    await client.until_lost()
    return found


@row("create_unix_server(protocol_factory=, path=)")
async def path(loop, folder):
    path = str(folder / "socket")
    for kind in (str, os.fsencode, Path):
        async with serving(loop, kind(path)) as (_, clients):
            equal(await talk(loop, clients, kind(path)), path)


@row("create_unix_connection(protocol_factory=, path=)")
async def connection_path(loop, folder):
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        for name in (str(path), os.fsencode(path), path):
            transport, protocol = await loop.create_unix_connection(Recorder, name)
            far, _ = listening.accept()
            with far:
                far.send(b"x")
                equal(await protocol.until_received(1), b"x")
                await gone(transport, protocol)


@row("abstract addresses")
async def abstract(loop):
    for name in (f"\0surface-{os.getpid()}", f"\0surface-{os.getpid()}".encode()):
        async with serving(loop, name) as (_, clients):
            await talk(loop, clients, name)


@row("create_unix_connection(sock=)")
async def connection_sock(loop):
    near, far = unix_pair()
    transport, protocol = await loop.create_unix_connection(Recorder, sock=near)
    far.send(b"x")
    equal(await protocol.until_received(1), b"x")
    await gone(transport, protocol)
    far.close()


@row("create_unix_server(sock=)")
async def server_sock(loop, folder):
    path = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        async with serving(loop, None, sock=sock) as (_, clients):
            await talk(loop, clients, path)


@row("create_unix_server(backlog=)")
async def backlog(loop, folder):
    path = str(folder / "socket")
    async with serving(loop, path, backlog=1):
        socks = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        results = []
        for sock in socks:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(path)
                results.append(True)
        for sock in socks:
            sock.close()
        assert 1 <= len(results) < 4, f"{len(results)} of 4 were queued"
        await turns(6)


@row("create_unix_server(start_serving=False)")
async def start_serving(loop, folder):
    path = str(folder / "socket")
    async with serving(loop, path, start_serving=False) as (server, clients):
        equal(server.is_serving(), False)
        await refused(loop.create_unix_connection(Recorder, path), ConnectionRefusedError)
        await server.start_serving()
        await talk(loop, clients, path)


@row("create_unix_server(cleanup_socket=)")
async def cleanup_socket(loop, folder):
    for wanted in (True, False):
        path = folder / f"socket {wanted}"
        async with serving(loop, str(path), cleanup_socket=wanted):
            equal(path.exists(), True)
        equal(path.exists(), not wanted, f"cleanup_socket={wanted}")


@row("create_unix_server(ssl=), create_unix_connection(ssl=, server_hostname=)")
async def tls(loop, folder):
    path = str(folder / "socket")
    async with serving(loop, path, ssl=server_context()) as (_, clients):
        await talk(loop, clients, path, ssl=client_context(), server_hostname="localhost")
        await refused(loop.create_unix_connection(
            Recorder, path, ssl=client_context(), server_hostname="other.test"),
            ssl.SSLCertVerificationError)
        await refused(
            loop.create_unix_connection(Recorder, path, ssl=client_context()), ValueError)


@row("create_unix_connection(ssl_handshake_timeout=)")
async def client_handshake_timeout(loop):
    near, far = unix_pair()
    await refused(loop.create_unix_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
        ssl_handshake_timeout=0.05), ConnectionAbortedError)
    await turns(4)
    far.close()


@row("create_unix_server(ssl_handshake_timeout=)")
async def server_handshake_timeout(loop, folder):
    path = str(folder / "socket")
    loop.set_exception_handler(lambda loop, context: None)
    async with serving(loop, path, ssl=server_context(), ssl_handshake_timeout=0.05):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            equal(await Peer(sock).recv_all(), b"")


@row("create_unix_connection(ssl_shutdown_timeout=)")
async def client_shutdown_timeout(loop):
    near, far = unix_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    (transport, protocol), _ = await soon(asyncio.gather(
        loop.create_unix_connection(
            Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
            ssl_shutdown_timeout=0.05),
        peer.handshake()))
    await farewell_to_silence(transport, protocol)
    peer.close()


@row("create_unix_server(ssl_shutdown_timeout=)")
async def server_shutdown_timeout(loop, folder):
    path = str(folder / "socket")
    async with serving(loop, path, ssl=server_context(), ssl_shutdown_timeout=0.05) as (
            _, clients):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            await TLSPeer(sock, client_context(), server_hostname="localhost").handshake()
            client = await clients.accepted()
            await farewell_to_silence(client.transport, client)


@row("a stale socket file is replaced, other files are not")
async def stale(loop, folder):
    path, other = str(folder / "socket"), str(folder / "file")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    async with serving(loop, path) as (_, clients):
        await talk(loop, clients, path)
    Path(other).write_text("mine")
    await refused(loop.create_unix_server(Recorder, other), OSError)
    equal(Path(other).read_text(), "mine")


@row("SO_PEERCRED by get_extra_info('socket')")
async def peer_credentials(loop, folder):
    path = str(folder / "socket")
    async with serving(loop, path) as (_, clients):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            client = await clients.accepted()
            data = client.transport.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            equal(struct.unpack("3i", data), (os.getpid(), os.getuid(), os.getgid()))


@row("path with sock, or neither, is a ValueError")
async def path_and_sock(loop, folder):
    near, far = unix_pair()
    for method in (loop.create_unix_connection, loop.create_unix_server):
        with raises(ValueError):
            await method(Recorder, str(folder / "socket"), sock=near)
        with raises(ValueError):
            await method(Recorder)
    near.close()
    far.close()

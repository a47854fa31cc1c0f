"""The object that create_server returns."""
import asyncio

from support.net import LOOPBACK
from support.protocols import Recorder
from support.waiting import quiet, soon, turns

from surface.checks import equal, kind_of, raises, refused
from surface.ends import dial, ended, serving
from surface.rows import subject

row = subject("Server")


@row("is an asyncio.Server")
async def server_class(loop):
    async with serving(loop) as (server, _):
        kind_of(server, asyncio.AbstractServer)
        kind_of(server, asyncio.Server)


@row("get_loop()")
async def get_loop(loop):
    async with serving(loop) as (server, _):
        assert server.get_loop() is loop, "another loop"


@row("sockets, before and after close()")
async def sockets(loop):
    async with serving(loop) as (server, _):
        equal(len(server.sockets), 1)
        assert server.sockets[0].fileno() >= 0, "closed"
    equal(list(server.sockets), [])


@row("is_serving()")
async def is_serving(loop):
    async with serving(loop) as (server, _):
        equal(server.is_serving(), True)
        server.close()
        equal(server.is_serving(), False)


@row("start_serving(), twice")
async def start_serving(loop):
    async with serving(loop, start_serving=False) as (server, clients):
        await server.start_serving()
        await server.start_serving()
        dial(server).close()
        await clients.accepted()


@row("close() stops listening and leaves connections alone, twice")
async def close(loop):
    async with serving(loop) as (server, clients):
        address = server.sockets[0].getsockname()
        with dial(server) as sock:
            client = await clients.accepted()
            server.close()
            server.close()
            await quiet()
            with raises(ConnectionRefusedError):
                await loop.create_connection(Recorder, *address)
            sock.sendall(b"still")
            equal(await client.until_received(5), b"still")


@row("serve_forever() until cancelled; then it stops serving")
async def serve_forever(loop):
    async with serving(loop, start_serving=False) as (server, clients):
        task = loop.create_task(server.serve_forever())
        await turns()
        dial(server).close()
        await clients.accepted()
        await clients.protocols[0].until_lost()
        with raises(RuntimeError):
            await server.serve_forever()
        task.cancel()
        await refused(soon(task), asyncio.CancelledError)
        equal(server.is_serving(), False)


@row("serve_forever() cancelled closes the clients")
async def serve_forever_clients(loop):
    async with serving(loop) as (server, clients):
        task = loop.create_task(server.serve_forever())
        with dial(server) as sock:
            client = await clients.accepted()
            task.cancel()
            await turns(4)
            equal(client.transport.is_closing(), True, "closing")
            sock.close()
            await refused(soon(task), asyncio.CancelledError)


@row("serve_forever() ends with close()")
async def close_ends_serving(loop):
    async with serving(loop) as (server, _):
        task = loop.create_task(server.serve_forever())
        await turns()
        server.close()
        await refused(soon(task), asyncio.CancelledError)


@row("wait_closed() waits for the connections")
async def wait_closed(loop):
    async with serving(loop) as (server, clients):
        with dial(server) as sock:
            client = await clients.accepted()
            waiting = loop.create_task(server.wait_closed())
            await quiet()
            equal(waiting.done(), False, "done before close()")
            server.close()
            await quiet()
            equal(waiting.done(), False, "done while a client is connected")
            sock.close()
            await client.until_lost()
            await soon(waiting)


@row("wait_closed() after the end returns at once")
async def wait_closed_late(loop):
    async with serving(loop) as (server, _):
        server.close()
        await soon(server.wait_closed())
        await soon(server.wait_closed())


@row("close_clients() closes each connection, sending what is unsent")
async def close_clients(loop):
    async with serving(loop) as (server, clients):
        with dial(server) as sock:
            client = await clients.accepted()
            sock.setblocking(False)
            data = b"x" * (6 << 20)
            client.transport.write(data)
            server.close()
            server.close_clients()
            received = 0
            while some := await loop.sock_recv(sock, 1 << 20):
                received += len(some)
            equal(received, len(data))
            equal(await client.until_lost(), None)
            await soon(server.wait_closed())


@row("abort_clients() drops what is unsent")
async def abort_clients(loop):
    async with serving(loop) as (server, clients):
        with dial(server):
            client = await clients.accepted()
            client.transport.write(b"x" * (12 << 20))
            server.close()
            server.abort_clients()
            await client.until_lost()
            await soon(server.wait_closed())


@row("async with server")
async def context_manager(loop):
    async with serving(loop) as (server, _):
        async with server as entered:
            assert entered is server, "another server"
            equal(server.is_serving(), True)
        equal(server.is_serving(), False)


@row("a port can be used again at once")
async def again(loop):
    async with serving(loop) as (server, clients):
        address = server.sockets[0].getsockname()
        with dial(server):
            client = await clients.accepted()
            client.transport.close()
            await client.until_lost()
    second = await loop.create_server(Recorder, LOOPBACK, address[1])
    async with ended(second, clients):
        equal(second.sockets[0].getsockname(), address)

"""WebSocket servers on eploop, with the client of the websockets library."""
import asyncio

import pytest
from harness.clients import check_loop, client_context, pattern
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

LARGE = 3_000_000


def with_connection(server, work, **options):
    """Run `work(connection)` on a connection to the server's echo."""

    async def main():
        context = client_context() if server.launch.tls else None
        async with connect(
            server.websocket_url, ssl=context, max_size=None, proxy=None, **options
        ) as connection:
            await asyncio.wait_for(work(connection), 15)

    asyncio.run(main())


def test_runs_on_the_wanted_loop(server):
    check_loop(server)


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_echo(server, compression):
    async def work(connection):
        for message in ("text", "", "größer", b"", b"bytes", pattern(200), pattern(70_000)):
            await connection.send(message)
            assert await connection.recv() == message

    with_connection(server, work, compression=compression)


def test_large_messages(server):
    async def work(connection):
        for message in (pattern(LARGE), pattern(LARGE // 4).hex()):
            await connection.send(message)
            assert await connection.recv() == message

    with_connection(server, work, compression=None)


def test_many_messages_in_flight(server):
    """Both directions at once: the receiver works while the sender is held up."""

    async def work(connection):
        messages = [pattern(i * 50) for i in range(500)]

        async def send():
            for message in messages:
                await connection.send(message)

        sender = asyncio.create_task(send())
        for message in messages:
            assert await connection.recv() == message
        await sender

    with_connection(server, work, compression=None)


def test_ping(server):
    async def work(connection):
        await (await connection.ping(b"are you there"))

    with_connection(server, work)


def test_client_closes(server):
    async def work(connection):
        await connection.send("one")
        assert await connection.recv() == "one"
        await connection.close(1000, "done")
        assert connection.close_code == 1000

    with_connection(server, work)


def test_server_closes(server):
    async def work(connection):
        await connection.send("close me")
        with pytest.raises(ConnectionClosed):
            await connection.recv()
        assert (connection.close_code, connection.close_reason) == (4001, "as you wish")

    with_connection(server, work)


def test_hundred_connections_at_once(server):
    async def one(i):
        context = client_context() if server.launch.tls else None
        async with connect(server.websocket_url, ssl=context, proxy=None) as connection:
            for message in (f"client {i}", pattern(1_000 + i)):
                await connection.send(message)
                assert await connection.recv() == message

    async def main():
        await asyncio.gather(*(one(i) for i in range(100)))

    asyncio.run(main())

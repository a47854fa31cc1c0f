"""A TCP echo server: an ordinary asyncio program that works on any event loop."""

import asyncio


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def start(host: str, port: int) -> asyncio.Server:
    """Starts to listen; port 0 takes any free one."""
    return await asyncio.get_running_loop().create_server(Echo, host, port, backlog=1024)


async def serve(port: int) -> None:
    """Serves until cancelled."""
    server = await start("127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(8007))

"""A websockets server. `python websockets_app.py --port N [--cert FILE --key FILE]`."""
import argparse
import asyncio
import signal
import ssl
from http import HTTPStatus

from answers import loop_report, shut_down
from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        if message == "close me":
            await connection.close(4001, "as you wish")
            return
        await connection.send(message)


def plain_answer(connection, request):
    """Answer what is no WebSocket, so that the loop can be asked for."""
    if request.path == "/loop":
        return connection.respond(HTTPStatus.OK, loop_report().decode())
    return None


async def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args(argv)
    context = None
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.cert, options.key)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve(
        echo,
        "127.0.0.1",
        options.port,
        ssl=context,
        max_size=None,
        process_request=plain_answer,
    ):
        await stop.wait()
    shut_down()


if __name__ == "__main__":
    asyncio.run(main())

"""The same servers in programs that ask for eploop themselves.

`python on_eploop.py {factory,policy} {uvicorn,aiohttp,hypercorn,websockets} --port N ...`:
`factory` makes the loop where it is used, `policy` changes the default and then runs the server
as ever.
"""
import argparse
import asyncio
import signal
import ssl
import sys

import aiohttp_app
import asgi_app
import websockets_app

import eploop


def uvicorn(how, argv):
    import uvicorn

    options = address(argv)
    config = uvicorn.Config(
        asgi_app.app,
        port=options.port,
        loop="none",
        ssl_certfile=options.cert,
        ssl_keyfile=options.key,
    )
    server = uvicorn.Server(config)
    if how == "factory":
        eploop.run(server.serve())
    else:
        eploop.install()
        server.run()


def aiohttp(how, argv):
    from aiohttp import web

    settings = aiohttp_app.settings(argv)
    if how == "factory":
        web.run_app(aiohttp_app.make_app(), loop=eploop.new_event_loop(), **settings)
    else:
        eploop.install()
        web.run_app(aiohttp_app.make_app(), **settings)


def hypercorn(how, argv):
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    options = address(argv)
    config = Config()
    config.bind = [f"127.0.0.1:{options.port}"]
    config.certfile, config.keyfile = options.cert, options.key
    config.keep_alive_timeout = 1

    def without_tls_errors(loop, context):
        # As hypercorn's own command does: clients may send after close_notify.
        if not isinstance(context.get("exception"), ssl.SSLError):
            loop.default_exception_handler(context)

    async def main():
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(without_tls_errors)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(asgi_app.app, config, shutdown_trigger=stop.wait)

    run(how, main())


def websockets(how, argv):
    run(how, websockets_app.main(argv))


def run(how, main):
    if how == "factory":
        with asyncio.Runner(loop_factory=eploop.loop_factory()) as runner:
            runner.run(main)
    else:
        asyncio.set_event_loop_policy(eploop.EventLoopPolicy())
        asyncio.run(main)


def address(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    return parser.parse_args(argv)


if __name__ == "__main__":
    way, server, *rest = sys.argv[1:]
    {"uvicorn": uvicorn, "aiohttp": aiohttp, "hypercorn": hypercorn, "websockets": websockets}[
        server
    ](way, rest)

"""An aiohttp server. `python aiohttp_app.py --port N [--cert FILE --key FILE]`."""
import argparse
import asyncio
import hashlib
import ssl

from aiohttp import WSMsgType, web
from answers import loop_report, pattern, shut_down

DISCONNECTS = web.AppKey("disconnects", list)


async def loop(request):
    return web.Response(body=loop_report())


async def upload(request):
    digest, size = hashlib.sha256(), 0
    async for chunk in request.content.iter_any():
        digest.update(chunk)
        size += len(chunk)
    return web.json_response({"size": size, "sha256": digest.hexdigest()})


async def download(request):
    return web.Response(body=pattern(int(request.query["size"])))


async def echo(request):
    return web.Response(body=await request.read())


async def stream(request):
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    size, pause = int(request.query.get("size", 0)), int(request.query.get("pause", 0))
    for i in range(int(request.query["chunks"])):
        await response.write(pattern(size) + str(i).encode())
        if pause:
            await asyncio.sleep(pause / 1000)
    await response.write_eof()
    return response


async def delay(request):
    await asyncio.sleep(int(request.query["ms"]) / 1000)
    return web.Response(body=b"late")


async def endless(request):
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        while True:
            await response.write(pattern(65536))
            await asyncio.sleep(0)
    except ConnectionError:
        return response
    finally:
        request.app[DISCONNECTS].append(1)


async def count_disconnects(request):
    return web.Response(text=str(len(request.app[DISCONNECTS])))


async def websocket(request):
    socket = web.WebSocketResponse(max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type == WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        elif message.data == "close me":
            await socket.close(code=4001, message=b"as you wish")
        else:
            await socket.send_str(message.data)
    return socket


async def on_shutdown(app):
    shut_down()


def make_app():
    app = web.Application(client_max_size=1 << 30)
    app[DISCONNECTS] = []
    app.on_shutdown.append(on_shutdown)
    app.router.add_get("/loop", loop)
    app.router.add_post("/upload", upload)
    app.router.add_get("/download", download)
    app.router.add_post("/echo", echo)
    app.router.add_get("/stream", stream)
    app.router.add_get("/delay", delay)
    app.router.add_get("/endless", endless)
    app.router.add_get("/disconnects", count_disconnects)
    app.router.add_get("/ws", websocket)
    return app


def settings(argv=None):
    """The arguments of `web.run_app` that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args(argv)
    context = None
    if options.cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.cert, options.key)
    return {"host": "127.0.0.1", "port": options.port, "ssl_context": context}


if __name__ == "__main__":
    web.run_app(make_app(), **settings())

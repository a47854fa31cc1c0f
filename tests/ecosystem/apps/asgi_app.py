"""An ASGI application for uvicorn and hypercorn. Knows nothing of event loops."""
import asyncio
import hashlib
import json
from urllib.parse import parse_qsl

from answers import loop_report, pattern, shut_down

disconnects = 0


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await websocket(receive, send)
    else:
        query = dict(parse_qsl(scope["query_string"].decode()))
        await ROUTES.get(scope["path"], missing)(query, receive, send)


async def lifespan(receive, send):
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            shut_down()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def websocket(receive, send):
    while True:
        message = await receive()
        if message["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        elif message["type"] == "websocket.disconnect":
            return
        elif message.get("text") == "close me":
            await send({"type": "websocket.close", "code": 4001, "reason": "as you wish"})
            return
        elif message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


async def body_chunks(receive):
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def answer(send, body, status=200, length=True):
    headers = [(b"content-type", b"application/octet-stream")]
    if length:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def loop(query, receive, send):
    await answer(send, loop_report())


async def upload(query, receive, send):
    digest, size = hashlib.sha256(), 0
    async for chunk in body_chunks(receive):
        digest.update(chunk)
        size += len(chunk)
    await answer(send, json.dumps({"size": size, "sha256": digest.hexdigest()}).encode())


async def download(query, receive, send):
    await answer(send, pattern(int(query["size"])))


async def echo(query, receive, send):
    await answer(send, b"".join([chunk async for chunk in body_chunks(receive)]))


async def stream(query, receive, send):
    """Chunked; with `pause` each chunk leaves in a turn of its own."""
    chunks, size, pause = (int(query.get(name, 0)) for name in ("chunks", "size", "pause"))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for i in range(chunks):
        body = pattern(size) + str(i).encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if pause:
            await asyncio.sleep(pause / 1000)
    await send({"type": "http.response.body", "body": b""})


async def delay(query, receive, send):
    await asyncio.sleep(int(query["ms"]) / 1000)
    await answer(send, b"late")


async def endless(query, receive, send):
    """Sends until the client goes away, and counts that."""
    global disconnects
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while not gone.done():
            await send({"type": "http.response.body", "body": pattern(65536), "more_body": True})
            await asyncio.sleep(0)
    finally:
        gone.cancel()
        disconnects += 1


async def wait_for_disconnect(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def count_disconnects(query, receive, send):
    await answer(send, str(disconnects).encode())


async def missing(query, receive, send):
    await answer(send, b"no such path", status=404)


ROUTES = {
    "/loop": loop,
    "/upload": upload,
    "/download": download,
    "/echo": echo,
    "/stream": stream,
    "/delay": delay,
    "/endless": endless,
    "/disconnects": count_disconnects,
}

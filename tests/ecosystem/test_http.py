"""Web servers on eploop do over HTTP and TLS what they do on asyncio."""
import asyncio
import json

import aiohttp
import pytest
from harness.clients import (
    check_loop,
    client_context,
    fetch,
    get,
    http_client,
    pattern,
    raw_client,
    read_response,
    reset,
    sha256,
    wait_until,
)
from harness.servers import WEB_SERVERS

SERVERS = WEB_SERVERS
LARGE = 6_000_000


def test_runs_on_the_wanted_loop(server):
    report = check_loop(server)
    if server.launch.loop != "asyncio":
        assert report["type"].startswith("eploop.")


def test_keep_alive(server):
    with http_client(server) as client:
        fetch(client, "/loop")
        sock = client.sock
        for i in range(30):
            body = f"request {i}".encode() * i
            assert fetch(client, "/echo", "POST", body=body) == body
            assert client.sock is sock


def test_large_upload(server):
    body = pattern(LARGE)
    with http_client(server) as client:
        report = json.loads(fetch(client, "/upload", "POST", body=body))
    assert report == {"size": LARGE, "sha256": sha256(body)}


def test_chunked_upload(server):
    pieces = [pattern(size) for size in (1, 70_000, 3, 0, 200_000, 16_384)]
    with http_client(server) as client:
        report = json.loads(
            fetch(client, "/upload", "POST", body=iter(pieces), encode_chunked=True,
                  headers={"Transfer-Encoding": "chunked"})
        )
    assert report["sha256"] == sha256(b"".join(pieces))


def test_large_download(server):
    body = get(server, f"/download?size={LARGE}")
    assert len(body) == LARGE
    assert sha256(body) == sha256(pattern(LARGE))


def test_download_to_a_slow_reader(server):
    """The server must stop writing while the client does not read, and then go on."""
    with raw_client(server, receive_buffer_bytes=8192) as sock:
        sock.sendall(f"GET /download?size={LARGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        get(server, "/delay?ms=50")     # meanwhile others are served
        with sock.makefile("rb") as file:
            status, body = read_response(file)
    assert status == 200
    assert sha256(body) == sha256(pattern(LARGE))


@pytest.mark.parametrize(("chunks", "size", "pause"), [(200, 3_000, 0), (10, 100_000, 0),
                                                       (10, 100, 5)])
def test_chunked_stream(server, chunks, size, pause):
    with http_client(server) as client:
        client.request("GET", f"/stream?chunks={chunks}&size={size}&pause={pause}")
        response = client.getresponse()
        assert response.headers["Transfer-Encoding"] == "chunked"
        body = response.read()
        assert body == b"".join(pattern(size) + str(i).encode() for i in range(chunks))
        fetch(client, "/loop")          # the connection is still good


def test_pipelining(server):
    sizes = [10, 5_000, 0, 300_000, 1, 70_000, 100]
    requests = [f"GET /download?size={n} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for n in sizes]
    with raw_client(server) as sock:
        sock.sendall(b"".join(requests))
        with sock.makefile("rb") as file:
            for size in sizes:
                assert read_response(file) == (200, pattern(size))


def test_request_in_single_bytes(server):
    with raw_client(server) as sock:
        for byte in b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello":
            sock.sendall(bytes([byte]))
        with sock.makefile("rb") as file:
            assert read_response(file) == (200, b"hello")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_client_disconnects_in_the_middle(server, how):
    before = int(get(server, "/disconnects"))
    with raw_client(server) as sock:
        sock.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(20):
            assert sock.recv(65536)
        if how == "reset":
            reset(sock)
    wait_until(lambda: int(get(server, "/disconnects")) > before, "the server sees the disconnect")


def test_connections_without_a_request(server):
    """Opened and closed: at once, after half a request head, and by a reset."""
    for data in (b"", b"GET /loop HT"):
        for end in (reset, lambda sock: sock.close()):
            with raw_client(server) as sock:
                sock.sendall(data)
                end(sock)
    check_loop(server)


def test_hundred_connections_at_once(server):
    async def one(session, i):
        for size in (i, 20_000 + i):
            body = pattern(size)
            async with session.post(f"{server.url}/echo", data=body) as response:
                assert await response.read() == body
        async with session.get(f"{server.url}/delay?ms=100") as response:
            assert await response.read() == b"late"

    async def main():
        connector = aiohttp.TCPConnector(limit=0, ssl=client_context())
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(one(session, i) for i in range(100)))

    asyncio.run(main())

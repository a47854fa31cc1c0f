"""Clients of the servers under test; what needs a loop runs on stock asyncio."""
import contextlib
import hashlib
import http.client
import json
import socket
import struct
import time

from harness.servers import PATIENCE_S, client_context

PERIOD = bytes(range(251))


def pattern(size):
    """The bytes that the applications send for a size."""
    return (PERIOD * (size // len(PERIOD) + 1))[:size]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def http_client(server):
    """A connection of http.client, closed at the end."""
    if server.launch.tls:
        client = http.client.HTTPSConnection(
            *server.address, timeout=PATIENCE_S, context=client_context()
        )
    else:
        client = http.client.HTTPConnection(*server.address, timeout=PATIENCE_S)
    with contextlib.closing(client):
        yield client


def fetch(client, path, method="GET", **options):
    """The body of one answer, which must have status 200."""
    client.request(method, path, **options)
    response = client.getresponse()
    body = response.read()
    assert response.status == 200, f"{method} {path}: {response.status} {body[:200]!r}"
    return body


def get(server, path):
    """The body of one answer, over a connection of its own."""
    with http_client(server) as client:
        return fetch(client, path)


def check_loop(server):
    """Assert that the server runs on the wanted loop; return its report."""
    report = json.loads(get(server, "/loop"))
    wanted = None if server.launch.loop == "asyncio" else server.launch.loop
    assert report["mode"] == wanted, report
    assert report["eploop"] is (wanted is not None), report
    return report


@contextlib.contextmanager
def raw_client(server, receive_buffer_bytes=None):
    """A connected blocking socket, with TLS if the server has it."""
    with socket.socket() as sock:
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.settimeout(PATIENCE_S)
        sock.connect(server.address)
        if not server.launch.tls:
            yield sock
            return
        with client_context().wrap_socket(sock, server_hostname="localhost") as secure:
            yield secure


def reset(sock):
    """Close so that the peer gets a reset: socket(7), SO_LINGER with time 0."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_response(file):
    """One HTTP/1.1 answer with a content length from a buffered reader: status and body."""
    status = int(file.readline().split()[1])
    headers = {}
    while (line := file.readline().strip()):
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    return status, file.read(int(headers[b"content-length"]))


def wait_until(condition, what):
    """Wait in small steps for something that the server does by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)

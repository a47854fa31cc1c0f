"""A small HTTP/1.1 server with keep-alive: an ordinary asyncio program, for any event loop.

It answers GET and HEAD on `/` and reads requests by the rules of RFC 9112: header syntax, Host,
bodies by length or in chunks, persistent connections, pipelining. What is malformed, too large or
ambiguous is answered with an error and the connection is closed.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

BODY = b"Hello, world!\n"
BODY_MAX_BYTES = 1 << 20
CHUNK_LINE_MAX_BYTES = 1024

REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
HEADER_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*)")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\0\r\n]*)?\r\n")


class Refused(Exception):
    """The request gets this status, and the connection ends with it."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(slots=True)
class Request:
    """One request without its body; header names in lower case."""

    method: str
    target: str
    version: tuple[int, int]
    headers: dict[str, str]

    def has_token(self, header: str, token: str) -> bool:
        """Whether a comma-separated header contains a word, in any case."""
        words = self.headers.get(header, "").lower().split(",")
        return token in (word.strip() for word in words)

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants to go on with this connection."""
        if self.version == (1, 0):
            return self.has_token("connection", "keep-alive")
        return not self.has_token("connection", "close")

    @property
    def path(self) -> str:
        """The target without a query; an absolute target without its scheme and host."""
        target = self.target
        if target.lower().startswith("http://"):
            target = "/" + target[7:].partition("/")[2]
        return target.partition("?")[0]


def parse_head(head: bytes) -> Request:
    """Parses a request line and its headers, up to and without the empty line.

    Raises:
        Refused: The head is malformed or of another HTTP version.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    match = REQUEST_LINE.fullmatch(first)
    if match is None:
        raise Refused(HTTPStatus.BAD_REQUEST)
    method, target, major, minor = match.groups()
    if major != "1":
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    request = Request(method, target, (1, int(minor)), _parse_headers(lines))
    if "host" not in request.headers and request.version != (1, 0):
        raise Refused(HTTPStatus.BAD_REQUEST)
    return request


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        match = HEADER_LINE.fullmatch(line)
        if match is None:
            raise Refused(HTTPStatus.BAD_REQUEST)
        name, value = match[1].lower(), match[2].rstrip(" \t")
        if name in headers:
            # Two of these would let two readers see two different requests.
            if name in ("host", "content-length", "transfer-encoding"):
                raise Refused(HTTPStatus.BAD_REQUEST)
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Reads the head of the next request; None if the client has no more."""
    head = b""
    while not head:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        # RFC 9112, 2.2: ignore empty lines before a request.
        head = head[:-4].lstrip(b"\r\n")
    return parse_head(head)


async def skip_body(
    request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Reads the body, if the request has one, so that the next request can be found.

    Raises:
        Refused: The length is malformed, ambiguous or too much.
    """
    if request.headers.keys().isdisjoint(("transfer-encoding", "content-length")):
        return
    coding = request.headers.get("transfer-encoding")
    length = request.headers.get("content-length", "0")
    if not re.fullmatch("[0-9]+", length):
        raise Refused(HTTPStatus.BAD_REQUEST)
    if coding is not None and ("content-length" in request.headers or request.version == (1, 0)):
        raise Refused(HTTPStatus.BAD_REQUEST)
    if coding is not None and coding.lower() != "chunked":
        raise Refused(HTTPStatus.NOT_IMPLEMENTED)
    if len(length) > 9 or int(length) > BODY_MAX_BYTES:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if request.has_token("expect", "100-continue") and (coding or int(length)):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if coding is not None:
        await _skip_chunks(reader)
    else:
        await reader.readexactly(int(length))


async def _skip_chunks(reader: asyncio.StreamReader) -> None:
    left_bytes = BODY_MAX_BYTES
    size_bytes = -1
    while size_bytes != 0:
        match = CHUNK_LINE.fullmatch(await _read_line(reader))
        if match is None:
            raise Refused(HTTPStatus.BAD_REQUEST)
        size_bytes = int(match[1], 16)
        left_bytes -= size_bytes
        if left_bytes < 0:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if size_bytes and not (await reader.readexactly(size_bytes + 2)).endswith(b"\r\n"):
            raise Refused(HTTPStatus.BAD_REQUEST)
    while (trailer := await _read_line(reader)) != b"\r\n":
        left_bytes -= len(trailer)
        if left_bytes < 0:
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.BAD_REQUEST) from None
    if len(line) > CHUNK_LINE_MAX_BYTES:
        raise Refused(HTTPStatus.BAD_REQUEST)
    return line


def answer(request: Request) -> bytes:
    """The response to a well-formed request."""
    if request.method not in ("GET", "HEAD"):
        status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"Only GET and HEAD are allowed.\n"
    elif request.path != "/":
        status, body = HTTPStatus.NOT_FOUND, b"Nothing is here; try /\n"
    else:
        status, body = HTTPStatus.OK, BODY
    head = response_head(status, len(body), request.keeps_alive, int(time.time()))
    return head if request.method == "HEAD" else head + body


@lru_cache(maxsize=16)
def response_head(status: HTTPStatus, body_bytes: int, keeps_alive: bool, date_s: int) -> bytes:
    """The status line and headers of a response; the date makes it a new one each second."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Date: {formatdate(date_s, usegmt=True)}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {body_bytes}",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def answer_next(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answers one request; returns whether another may follow."""
    try:
        request = await read_request(reader)
        if request is None:
            return False
        await skip_body(request, reader, writer)
    except Refused as refused:
        text = f"{refused.status.phrase}\n".encode()
        writer.write(response_head(refused.status, len(text), False, int(time.time())) + text)
        return False
    writer.write(answer(request))
    await writer.drain()
    return request.keeps_alive


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one connection."""
    try:
        while await answer_next(reader, writer):
            pass
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # The client went away in the middle; nobody is left to be told.
    except asyncio.CancelledError:
        pass  # The program ends. asyncio before 3.12 reports a cancelled handler as an error.
    finally:
        writer.close()


async def start(host: str, port: int) -> asyncio.Server:
    """Starts to listen; port 0 takes any free one."""
    return await asyncio.start_server(handle, host, port, backlog=1024)


async def serve(port: int, on_ready: Callable[[int], None]) -> None:
    """Serves until cancelled; says on which port it listens."""
    server = await start("127.0.0.1", port)
    on_ready(server.sockets[0].getsockname()[1])
    # Not serve_forever(): from 3.12 on, when cancelled, it waits for connections kept alive.
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(8080, print))

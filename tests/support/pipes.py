"""Both ends of pipes, FIFOs, terminals and sockets; the far end is a plain descriptor."""
import contextlib
import errno
import io
import os
import socket
import tty

from support.waiting import until

READ_KINDS = ("pipe", "fifo", "socket", "tty")
WRITE_KINDS = ("pipe", "fifo", "socket", "tty")


def _fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)
    return reader, writer


def _socket():
    return [sock.detach() for sock in socket.socketpair()]


def _tty():
    """A terminal that passes bytes through, and its master."""
    master, slave = os.openpty()
    tty.setraw(slave)
    return slave, master


def read_ends(kind, tmp_path):
    """An end to read from, and the far one to write to."""
    if kind == "pipe":
        return os.pipe()
    return {"fifo": lambda: _fifo(tmp_path), "socket": _socket, "tty": _tty}[kind]()


def write_ends(kind, tmp_path):
    """An end to write to, and the far one to read from."""
    near, far = read_ends(kind, tmp_path)
    return (near, far) if kind in ("socket", "tty") else (far, near)


@contextlib.contextmanager
def _end_of_terminal():
    """The master of a terminal whose slave is closed has no end of file, but an error."""
    try:
        yield
    except OSError as exc:
        if exc.errno != errno.EIO:
            raise


class Far:
    """The far end, non-blocking."""

    def __init__(self, fd):
        self.fd = fd
        os.set_blocking(fd, False)

    def write(self, data):
        assert os.write(self.fd, data) == len(data)

    def read_now(self, size=1 << 20):
        """What can be read without waiting; the end of file reads as nothing."""
        data = bytearray()
        with contextlib.suppress(BlockingIOError), _end_of_terminal():
            while len(data) < size and (some := os.read(self.fd, size - len(data))):
                data += some
        return bytes(data)

    async def read(self, size):
        data = bytearray()

        def enough():
            data.extend(self.read_now(size - len(data)))
            return len(data) >= size

        await until(enough, f"{size} bytes")
        return bytes(data)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@contextlib.asynccontextmanager
async def reading(loop, ends, factory):
    """A transport that reads from the first of `ends`, its protocol, and the far end."""
    file, far = io.FileIO(ends[0], "r"), Far(ends[1])
    transport, protocol = await loop.connect_read_pipe(factory, file)
    try:
        yield transport, protocol, far
    finally:
        transport.close()
        await until(lambda: file.closed, "the transport to close its file")
        far.close()


@contextlib.asynccontextmanager
async def writing(loop, ends, factory):
    """The same with a transport that writes."""
    file, far = io.FileIO(ends[0], "w"), Far(ends[1])
    transport, protocol = await loop.connect_write_pipe(factory, file)
    try:
        yield transport, protocol, far
    finally:
        if not transport.is_closing():
            transport.abort()
        far.close()
        await until(lambda: file.closed, "the transport to close its file")

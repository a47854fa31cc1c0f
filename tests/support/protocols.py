"""Protocols that note what the transport tells them."""
import asyncio

from support.waiting import soon


class _Recording:
    """Notes each call as a tuple, name first."""

    def __init__(self):
        self.calls = []
        self.received = bytearray()
        self.transport = None
        self._waiting = []

    def note(self, name, *args):
        self.calls.append((name, *args))
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @property
    def names(self):
        """What was called, in order, the same call in a row once."""
        names = [call[0] for call in self.calls]
        return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]

    def count(self, name):
        return sum(call[0] == name for call in self.calls)

    async def until(self, condition):
        """Wait until `condition(self)` is true; it is looked at after each call."""
        while not condition(self):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await soon(future)

    async def until_called(self, name, times=1):
        await self.until(lambda self: self.count(name) >= times)
        return next(call for call in self.calls if call[0] == name)

    async def until_received(self, size):
        await self.until(lambda self: len(self.received) >= size)
        return bytes(self.received)

    async def until_lost(self):
        """Wait for the end of the connection, and give the exception it ended with."""
        return (await self.until_called("connection_lost"))[1]

    def connection_made(self, transport):
        self.transport = transport
        self.note("connection_made")

    def connection_lost(self, exc):
        self.note("connection_lost", exc)

    def pause_writing(self):
        self.note("pause_writing", self.transport.get_write_buffer_size())

    def resume_writing(self):
        self.note("resume_writing", self.transport.get_write_buffer_size())

    def eof_received(self):
        self.note("eof_received")


class Recorder(_Recording, asyncio.Protocol):
    """A streaming protocol."""

    def data_received(self, data):
        self.received += data
        self.note("data_received", bytes(data))


class HalfOpenRecorder(Recorder):
    """Keeps its own half of the connection open when the peer closes the other."""

    def eof_received(self):
        super().eof_received()
        return True


class BufferedRecorder(_Recording, asyncio.BufferedProtocol):
    """A buffered protocol; `size` is that of the buffer it offers."""

    def __init__(self, size=65536):
        super().__init__()
        self.buffer = bytearray(size)
        self.hints = []

    def get_buffer(self, sizehint):
        self.hints.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes):
        self.received += self.buffer[:nbytes]
        self.note("buffer_updated", nbytes)


class ViewRecorder(BufferedRecorder):
    """Offers its buffer as a memoryview, which asyncio's TLS needs."""

    def get_buffer(self, sizehint):
        return memoryview(super().get_buffer(sizehint))


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

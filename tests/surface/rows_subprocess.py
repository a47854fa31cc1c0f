"""Subprocess transports, and asyncio's own subprocess functions."""
import asyncio
import contextlib
import contextvars
import os
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

from support.protocols import _Recording
from support.waiting import soon, turns

from surface.checks import descriptors, equal, kind_of, raises, refused, within
from surface.rows import subject

row = subject("Subprocesses")
variable = contextvars.ContextVar("variable", default="unset")


class Recorder(_Recording, asyncio.SubprocessProtocol):
    """Notes what it is told."""

    def __init__(self):
        super().__init__()
        self.data = {1: b"", 2: b""}

    def pipe_data_received(self, fd, data):
        self.data[fd] += data
        self.note("pipe_data_received", fd)

    def pipe_connection_lost(self, fd, exc):
        self.note("pipe_connection_lost", fd, exc)

    def process_exited(self):
        self.note("process_exited")


@contextlib.asynccontextmanager
async def shell(loop, command, factory=Recorder, **options):
    """A shell's transport and protocol; it is killed at the end if it still runs."""
    transport, protocol = await loop.subprocess_shell(factory, command, **options)
    try:
        yield transport, protocol
    finally:
        transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.until_called("connection_lost"), 1)
        await turns(4)


@row("subprocess_exec(protocol_factory=, *args=)")
async def subprocess_exec(loop):
    transport, protocol = await loop.subprocess_exec(
        Recorder, sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b", b"c")
    await protocol.until_lost()
    equal(protocol.data[1], b"['a b', 'c']\n")
    equal(transport.get_returncode(), 0)
    transport.close()
    await turns(4)


@row("subprocess_shell(protocol_factory=, cmd=): the order of the calls")
async def subprocess_shell(loop):
    async with shell(loop, "echo out; echo err >&2; exit 3") as (transport, protocol):
        equal(await protocol.until_lost(), None)
        equal(protocol.data, {1: b"out\n", 2: b"err\n"})
        equal(transport.get_returncode(), 3)
        equal((protocol.names[0], protocol.names[-1]), ("connection_made", "connection_lost"))
        equal((protocol.count("pipe_connection_lost"), protocol.count("process_exited")), (3, 1))


@row("is an asyncio.SubprocessTransport, its pipes ReadTransport and WriteTransport")
async def classes(loop):
    async with shell(loop, "read line") as (transport, _):
        kind_of(transport, asyncio.SubprocessTransport)
        kind_of(transport.get_pipe_transport(0), asyncio.WriteTransport)
        kind_of(transport.get_pipe_transport(1), asyncio.ReadTransport)


@row("get_extra_info(name=subprocess, default=): a subprocess.Popen")
async def extra_info(loop):
    async with shell(loop, "read line") as (transport, _):
        equal(transport.get_extra_info("no such thing", 3), 3)
        kind_of(transport.get_extra_info("subprocess"), subprocess.Popen)


@row("get_pid(), get_returncode()")
async def asking(loop):
    async with shell(loop, "echo $$; read line") as (transport, protocol):
        await protocol.until_called("pipe_data_received")
        equal(transport.get_pid(), int(protocol.data[1]))
        equal(transport.get_returncode(), None)


@row("get_pipe_transport(fd=): writing and ending the input")
async def pipe_transport(loop):
    async with shell(loop, "cat") as (transport, protocol):
        stdin = transport.get_pipe_transport(0)
        equal(transport.get_pipe_transport(7), None)
        stdin.write(b"hello")
        stdin.write_eof()
        await protocol.until_lost()
        equal(protocol.data[1], b"hello")


@row("send_signal(signal=), terminate(), kill()")
async def signals(loop):
    for send, wanted in (
        (lambda transport: transport.send_signal(signal.SIGUSR1), -signal.SIGUSR1),
        (lambda transport: transport.terminate(), -signal.SIGTERM),
        (lambda transport: transport.kill(), -signal.SIGKILL),
    ):
        async with shell(loop, "echo; exec sleep 10") as (transport, protocol):
            await protocol.until_called("pipe_data_received")
            send(transport)
            await protocol.until_lost()
            equal(transport.get_returncode(), wanted)


@row("a signal after the end is a ProcessLookupError")
async def late_signal(loop):
    async with shell(loop, "exit 0") as (transport, protocol):
        await protocol.until_lost()
        for send in (lambda: transport.send_signal(signal.SIGUSR1), transport.terminate,
                     transport.kill):
            with raises(ProcessLookupError):
                send()


@row("is_closing()")
async def is_closing(loop):
    async with shell(loop, "exec sleep 10") as (transport, _):
        equal(transport.is_closing(), False)
        transport.close()
        equal(transport.is_closing(), True)


@row("close() kills")
async def close(loop):
    async with shell(loop, "exec sleep 10") as (transport, protocol):
        transport.close()
        await protocol.until_lost()
        equal(transport.get_returncode(), -signal.SIGKILL)


@row("set_protocol(protocol=), get_protocol()")
async def set_protocol(loop):
    async with shell(loop, "read line; echo $line") as (transport, first):
        assert transport.get_protocol() is first, "another protocol"
        second = Recorder()
        transport.set_protocol(second)
        assert transport.get_protocol() is second, "not the new protocol"
        transport.get_pipe_transport(0).write(b"hello\n")
        await second.until_lost()
        equal((first.data[1], second.data[1]), (b"", b"hello\n"))
        first.note("connection_lost", None)


@row("callbacks run in the creator's context")
async def context(loop):
    class Notes(Recorder):
        def note(self, name, *args):
            super().note(name, variable.get(), *args)

    variable.set("creator's")
    async with shell(loop, "read line; echo $line", Notes) as (transport, protocol):
        variable.set("another's")
        transport.get_pipe_transport(0).write(b"hello\n")
        await protocol.until_called("connection_lost")
        equal({call[1] for call in protocol.calls}, {"creator's"})


@row("no such program is a FileNotFoundError, and leaves nothing behind")
async def no_program(loop):
    async with shell(loop, "exit 0") as (_, protocol):
        await protocol.until_lost()     # what is there from now on is no leak
    before = descriptors()
    await refused(loop.subprocess_exec(Recorder, "/no/such/program"), FileNotFoundError)
    await turns(4)
    equal(descriptors(), before)


@row("asyncio.create_subprocess_exec(), communicate(): 1 MB both ways")
async def communicate(loop):
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    data = bytes(range(250)) * 4000
    out, err = await soon(process.communicate(data))
    assert out == data, "other bytes"
    equal((err, process.returncode), (None, 0))


@row("asyncio.create_subprocess_shell(), wait()")
async def wait(loop):
    process = await asyncio.create_subprocess_shell("exit 7", stdout=DEVNULL, stderr=STDOUT)
    equal(await soon(process.wait()), 7)
    equal(await soon(process.wait()), 7)


@row("wait() does not wait for a grandchild that holds the pipes")
async def grandchild(loop):
    process = await asyncio.create_subprocess_shell("sleep 3 & exit 7", stdout=PIPE)
    try:
        with within(1):
            equal(await asyncio.wait_for(process.wait(), 1.5), 7)
    finally:
        process._transport.close()
        await turns(4)


@row("the loop of another thread")
def other_thread(kind):
    results = []

    async def run():
        process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        results.append(await process.wait())

    def target():
        loop = kind.make()
        try:
            loop.run_until_complete(asyncio.wait_for(run(), 2))
        finally:
            loop.close()

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(4)
    equal(results, [7])


def children():
    """The processes that this one has started and not reaped."""
    files = Path("/proc/self/task").glob("*/children")
    return sorted(number for file in files for number in file.read_text().split())


@row("ten at once, and no descriptor or child is left")
async def ten(loop):
    async def run(code):
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}", stdout=PIPE)
        _out, _ = await process.communicate()
        return process.returncode

    await run(0)
    await turns(4)
    before = descriptors(), children()
    equal(await soon(asyncio.gather(*map(run, range(10)))), list(range(10)))
    await turns(8)
    equal((descriptors(), children()), before)


@row("os.register_at_fork() hooks are not run")
async def at_fork(loop, folder):
    path = str(folder / "ran")

    def hook():
        if armed:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))

    armed = []
    os.register_at_fork(after_in_child=hook)
    armed.append(True)
    try:
        process = await asyncio.create_subprocess_exec("true")
        equal(await soon(process.wait()), 0)
    finally:
        armed.clear()
    equal(os.path.exists(path), False, "a hook was run")


@row("a child that somebody else has reaped: code 255 and a warning")
async def reaped(loop):
    transport, protocol = await loop.subprocess_exec(
        Recorder, "true", stdin=None, stdout=None, stderr=None)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(transport.get_pid(), 0)
    await protocol.until_lost()
    assert transport.get_returncode() in (0, 255), transport.get_returncode()
    transport.close()
    await turns(4)

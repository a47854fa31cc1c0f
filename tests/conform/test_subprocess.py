"""Child processes: starting, talking, signalling, ending."""
import asyncio
import contextlib
import contextvars
import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from asyncio.subprocess import DEVNULL, PIPE, STDOUT

import pytest
from support.features import needs
from support.loops import differs_from_asyncio, eploop_only, needs_python, without_debug
from support.waiting import soon, turns, until

pytestmark = needs("subprocess")
var = contextvars.ContextVar("var", default="unset")
WAYS = ("pidfd", "thread")


class Recorder(asyncio.SubprocessProtocol):
    def __init__(self):
        self.calls = []
        self.data = {1: b"", 2: b""}
        self.lost = asyncio.get_running_loop().create_future()
        self.exited = asyncio.get_running_loop().create_future()

    def note(self, name, *args):
        self.calls.append((name, *args))

    @property
    def names(self):
        return [call[0] for call in self.calls]

    def connection_made(self, transport):
        self.transport = transport
        self.note("connection_made")

    def pipe_data_received(self, fd, data):
        self.data[fd] += data
        self.note("pipe_data_received", fd)

    def pipe_connection_lost(self, fd, exc):
        self.note("pipe_connection_lost", fd, exc)

    def process_exited(self):
        self.note("process_exited")
        self.exited.set_result(None)

    def connection_lost(self, exc):
        self.note("connection_lost", exc)
        self.lost.set_result(exc)

    def pause_writing(self):
        self.note("pause_writing")

    def resume_writing(self):
        self.note("resume_writing")


@pytest.fixture(params=WAYS)
def way(request, loop_spec, monkeypatch):
    """How the end of a child is noticed, if there is a choice."""
    if request.param == "thread":
        if loop_spec.is_asyncio:
            pytest.skip("asyncio has its own ways")
        without_pidfd(monkeypatch)
    return request.param


def without_pidfd(monkeypatch, error=errno.ENOSYS):
    def refuse(*args):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("eploop.process.PidfdWatch", refuse)


async def run(*args, **options):
    """Run a program to its end: return code, output, errors."""
    process = await asyncio.create_subprocess_exec(*args, **options)
    out, err = await soon(process.communicate())
    return process.returncode, out, err


async def run_python(code, **options):
    options.setdefault("stdout", PIPE)
    return await run(sys.executable, "-c", textwrap.dedent(code), **options)


# ---- the life of a process


async def test_order_of_the_calls(loop, way):
    transport, protocol = await loop.subprocess_shell(
        Recorder, "echo out; echo err >&2; read line; exit 3")
    assert protocol.names[0] == "connection_made"
    assert transport.get_returncode() is None
    assert isinstance(transport, asyncio.SubprocessTransport)
    assert isinstance(transport.get_extra_info("subprocess"), subprocess.Popen)
    assert transport.get_pid() == transport.get_extra_info("subprocess").pid
    transport.get_pipe_transport(0).close()
    assert await soon(protocol.lost) is None
    assert protocol.data == {1: b"out\n", 2: b"err\n"}
    assert transport.get_returncode() == 3
    assert transport.get_extra_info("subprocess").returncode == 3
    assert protocol.names.count("process_exited") == 1
    assert protocol.names.count("pipe_connection_lost") == 3
    assert protocol.names[-1] == "connection_lost"
    transport.close()


async def test_return_codes(loop, way):
    codes = await asyncio.gather(*(
        run("/bin/sh", "-c", command)
        for command in ("exit 0", "exit 255", "kill -TERM $$", "kill -KILL $$")
    ))
    assert [code for code, _, _ in codes] == [0, 255, -signal.SIGTERM, -signal.SIGKILL]


async def test_much_data_both_ways(loop, way):
    data = os.urandom(300_000)
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    out, _ = await soon(process.communicate(data))
    assert out == data
    assert process.returncode == 0


async def test_flow_control(loop):
    transport, protocol = await loop.subprocess_exec(Recorder, "cat")
    transport.get_pipe_transport(0).write(b"x" * 1_000_000)
    assert protocol.names == ["connection_made", "pause_writing"]
    await until(lambda: len(protocol.data[1]) == 1_000_000)
    await until(lambda: "resume_writing" in protocol.names)
    transport.close()
    await soon(protocol.lost)


async def test_wait_by_many_and_cancelled(loop, way):
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE)
    waits = [loop.create_task(process.wait()) for _ in range(3)]
    await turns()
    waits[0].cancel()
    await turns()
    process.stdin.close()
    assert await soon(asyncio.gather(*waits[1:])) == [0, 0]
    assert await process.wait() == 0


@differs_from_asyncio("wait() waits for the pipes too", below=(3, 15))
async def test_wait_does_not_wait_for_a_grandchild(loop, way):
    transport, protocol = await loop.subprocess_shell(
        Recorder, "sleep 30 & echo $!; exit 5", stdin=None, stderr=None)
    assert await soon(transport._wait()) == 5
    await soon(protocol.exited)
    await until(lambda: protocol.data[1])
    assert "connection_lost" not in protocol.names
    os.kill(int(protocol.data[1]), signal.SIGKILL)
    assert await soon(protocol.lost) is None
    transport.close()


# ---- what is passed on


async def test_streams(loop):
    code = "import sys; print(sys.stdin.read()); print('err', file=sys.stderr)"
    assert await run_python(code, stdin=DEVNULL, stderr=STDOUT) == (0, b"\nerr\n", None)
    assert await run_python(code, stdin=DEVNULL, stderr=PIPE) == (0, b"\n", b"err\n")
    assert await run_python(code, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL) == (
        0, None, None)


async def test_arguments_of_popen(loop, tmp_path):
    near, far = os.pipe()
    code, out, _ = await run_python(
        f"""
        import os
        print(os.getcwd(), os.environ["NAME"], os.getsid(0) == os.getpid(), oct(os.umask(0)))
        os.write({far}, b"passed")
        """,
        cwd=tmp_path, env={"NAME": "value"}, start_new_session=True, umask=0o27, pass_fds=(far,))
    assert code == 0
    assert out.decode().split() == [str(tmp_path), "value", "True", "0o27"]
    assert os.read(near, 100) == b"passed"
    os.close(near)
    os.close(far)


@needs_python(3, 11)
async def test_process_group(loop):
    _, out, _ = await run_python("import os; print(os.getpgid(0) == os.getpid())",
                                 process_group=0)
    assert out == b"True\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may")
async def test_user_and_groups(loop):
    _, out, _ = await run("/bin/sh", "-c", "id -u; id -g; id -G", stdout=PIPE,
                          user=65534, group=65533, extra_groups=[65532])
    assert out == b"65534\n65533\n65533 65532\n"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_preexec_fn(loop):
    assert (await run("/bin/sh", "-c", "umask", stdout=PIPE,
                      preexec_fn=lambda: os.umask(0o31)))[1] == b"0031\n"


@pytest.mark.parametrize("close_fds", [True, False])
async def test_nothing_of_the_loop_is_inherited(loop, close_fds):
    inheritable = {fd for fd in map(int, os.listdir("/proc/self/fd")) if is_inheritable(fd)}
    other = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    _, out, _ = await run_python(
        """
        import os, signal
        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        print(signal.set_wakeup_fd(-1), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
        for fd in os.listdir("/proc/self/fd"):
            print(fd)
        """, stdin=DEVNULL, close_fds=close_fds)
    lines = out.decode().splitlines()
    assert lines[:2] == ["[]", "-1 True"]
    extra = set(map(int, lines[2:])) - {0, 1, 2} - (set() if close_fds else inheritable)
    assert len(extra) <= 1      # what os.listdir() itself opens
    other.kill()
    await other.wait()
    other.stdin.close()
    await turns()


def is_inheritable(fd):
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


async def test_no_such_program(loop):
    with pytest.raises(FileNotFoundError):
        await asyncio.create_subprocess_exec("/no/such/program", stdin=PIPE, stdout=PIPE)


# ---- signals


@pytest.mark.parametrize("method, sig", [
    ("terminate", signal.SIGTERM), ("kill", signal.SIGKILL), ("send_signal", signal.SIGUSR1)])
async def test_signals(loop, way, method, sig):
    process = await asyncio.create_subprocess_exec("sleep", "30")
    getattr(process, method)(*([sig] if method == "send_signal" else []))
    assert await soon(process.wait()) == -sig


async def test_no_signal_after_the_end(loop, way):
    process = await asyncio.create_subprocess_exec("true")
    await soon(process.wait())
    await turns()
    for function in (process.kill, process.terminate, lambda: process.send_signal(0)):
        with pytest.raises(ProcessLookupError):
            function()


async def test_a_signal_before_the_protocol_heard_of_the_end_is_no_error(loop, way):
    class Killing(Recorder):
        def process_exited(self):
            self.transport.kill()
            super().process_exited()

    transport, protocol = await loop.subprocess_exec(Killing, "true")
    protocol.transport = transport
    await soon(protocol.exited)
    await soon(protocol.lost)
    with pytest.raises(ProcessLookupError):
        transport.kill()
    transport.close()


@eploop_only("asyncio calls os.kill()")
async def test_a_recycled_number_is_never_signalled(loop, way, monkeypatch):
    """Between the reaping and connection_lost(), while a grandchild holds a pipe."""
    transport, protocol = await loop.subprocess_shell(
        Recorder, "sleep 30 & echo $!", stdin=None, stderr=None)
    await soon(protocol.exited)
    monkeypatch.setattr(os, "kill", None)
    transport.kill()
    transport.close()
    monkeypatch.undo()
    await until(lambda: protocol.data[1])
    os.kill(int(protocol.data[1]), signal.SIGKILL)
    await soon(protocol.lost)


async def test_close_kills(loop, way):
    transport, protocol = await loop.subprocess_exec(Recorder, "sleep", "30")
    transport.close()
    assert transport.is_closing()
    await soon(protocol.lost)
    assert transport.get_returncode() == -signal.SIGKILL
    transport.close()


@differs_from_asyncio("close() reaps it, and its own watcher reports 255 then")
async def test_close_when_it_has_ended_but_nobody_noticed(loop, way):
    transport, protocol = await loop.subprocess_shell(Recorder, "read line; exit 7")
    transport.get_pipe_transport(0).write(b"\n")
    os.waitid(os.P_PID, transport.get_pid(), os.WEXITED | os.WNOWAIT)
    transport.close()
    await soon(protocol.lost)
    assert transport.get_returncode() == 7


# ---- reaped by others


@differs_from_asyncio("a thread of its own waits for the child, and may be first", below=(3, 12))
async def test_popen_polled_by_the_user(loop, way):
    transport, protocol = await loop.subprocess_shell(
        Recorder, "read line; exit 7", stdout=None, stderr=None)
    transport.get_pipe_transport(0).write(b"\n")
    assert transport.get_extra_info("subprocess").wait() == 7
    await soon(protocol.lost)
    if loop.__module__.startswith("eploop"):
        assert transport.get_returncode() == 7
    transport.close()


@differs_from_asyncio("a thread of its own waits for the child, and may be first", below=(3, 12))
async def test_reaped_by_somebody_else(loop, way, caplog):
    transport, protocol = await loop.subprocess_shell(
        Recorder, "read line; exit 7", stdout=None, stderr=None)
    transport.get_pipe_transport(0).write(b"\n")
    os.waitpid(transport.get_pid(), 0)
    await soon(protocol.lost)
    assert transport.get_returncode() == 255
    assert [record.levelno for record in caplog.records if "255" in record.message] == [
        logging.WARNING]
    transport.close()


@eploop_only("asyncio's watcher raises")
async def test_reaped_before_it_could_be_watched(loop, way, monkeypatch):
    """As with SIGCHLD ignored, where the kernel reaps."""
    class Hasty(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            os.waitpid(self.pid, 0)

    monkeypatch.setattr(subprocess, "Popen", Hasty)
    assert (await run("true"))[0] == 255


async def test_ended_before_it_could_be_watched(loop, way, monkeypatch):
    class Slow(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    assert (await run("/bin/sh", "-c", "exit 9"))[0] == 9


async def test_children_of_others_are_left_alone(loop, way):
    popen = subprocess.Popen(["/bin/sh", "-c", "exit 41"])
    assert (await run("/bin/sh", "-c", "exit 1"))[0] == 1
    assert popen.wait() == 41


# ---- where there is no pidfd


@eploop_only("asyncio chooses otherwise")
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM, errno.EMFILE])
async def test_a_thread_waits_where_there_is_no_pidfd(loop, monkeypatch, error):
    without_pidfd(monkeypatch, error)
    threads = threading.active_count()
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE)
    assert threading.active_count() == threads + 1
    process.stdin.close()
    assert await soon(process.wait()) == 0
    await until(lambda: threading.active_count() == threads)


@eploop_only("asyncio chooses otherwise")
@without_debug("starts a whole interpreter")
@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="system call number")
async def test_a_seccomp_filter_refuses_pidfds(loop, loop_spec):
    code, out, err = await run(sys.executable, "-c", SECCOMP, loop_spec.mode, stdout=PIPE,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (code, out, err) == (0, b"[4, 5, 6]\n", None)


SECCOMP = textwrap.dedent("""
    import asyncio, ctypes, struct, sys
    import eploop

    # Load the number; 434 (pidfd_open): EPERM; everything else: allowed.
    code = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program) == 0

    async def main():
        processes = [await asyncio.create_subprocess_shell(f"exit {i}") for i in (4, 5, 6)]
        print([await process.wait() for process in processes])

    eploop.run(main(), mode=sys.argv[1])
    """)


# ---- threads, contexts, cancellation, leaks


def test_loop_of_another_thread(loop_factory, way):
    codes = []

    def other():
        loop = loop_factory()
        asyncio.set_event_loop(loop)
        codes.append(loop.run_until_complete(run("/bin/sh", "-c", "exit 4"))[0])
        asyncio.set_event_loop(None)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    assert codes == [4]


@differs_from_asyncio("each pipe has a context of its own")
async def test_one_context(loop):
    class Seeing(Recorder):
        def note(self, name, *args):
            super().note(name, *args)
            seen.append((name, var.get()))
            if name == "connection_made":
                var.set("process")

    seen = []
    var.set("creator")
    transport, protocol = await loop.subprocess_exec(Seeing, "cat")
    var.set("later")
    transport.get_pipe_transport(0).write(b"x" * 500_000)
    await until(lambda: len(protocol.data[1]) == 500_000)
    transport.get_pipe_transport(0).close()
    await soon(protocol.lost)
    transport.close()
    assert seen[0] == ("connection_made", "creator")
    assert {value for _, value in seen[1:]} == {"process"}
    assert {"pause_writing", "resume_writing", "process_exited"} <= {name for name, _ in seen}


@pytest.mark.parametrize("steps", range(6))
async def test_cancelled_while_starting(loop, way, steps):
    task = loop.create_task(loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "30"))
    await turns(steps)
    if task.done():
        transport, _ = task.result()
        transport.close()
        await soon(transport._wait())
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(task)
    await turns(5)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@eploop_only("what asyncio leaves open is collected some time")
async def test_a_pipe_that_cannot_be_connected(loop, monkeypatch):
    async def refuse(*args):
        raise OSError(errno.ENOSPC, "too many")

    monkeypatch.setattr(loop, "connect_read_pipe", refuse)
    with pytest.raises(OSError, match="too many"):
        await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    monkeypatch.undo()


@without_debug("long")
@pytest.mark.time_limit(60)
async def test_a_thousand_leave_nothing_behind(loop, loop_spec):
    if loop_spec.is_asyncio:
        pytest.skip("slow, and not ours")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        codes = await asyncio.gather(*(run("true", stdout=PIPE) for _ in range(20)))
        assert {code for code, _, _ in codes} == {0}
    await turns()
    assert len(os.listdir("/proc/self/fd")) == before


@differs_from_asyncio("a thread of the child watcher keeps the transport", below=(3, 12))
@pytest.mark.unguarded("the transport is left open on purpose")
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_unclosed_transport_warns_and_kills(loop):
    async def start():
        transport, _ = await loop.subprocess_exec(
            asyncio.SubprocessProtocol, "sleep", "30", stdin=None, stdout=None, stderr=None)
        assert "running" in repr(transport)
        return transport.get_pid()

    pid = loop.run_until_complete(start())
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        loop.close()
        gc.collect()
    # Popen's own destructor may find it dead already, and reap it.
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL

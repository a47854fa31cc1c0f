"""The parameters of subprocess_exec and subprocess_shell."""
import ast
import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT

from support.waiting import soon

from surface.checks import equal, refused
from surface.rows import Unavailable, subject

row = subject("Subprocess parameters")


async def run(*args, **options):
    """Run a program to its end: return code and output."""
    options.setdefault("stdout", PIPE)
    process = await asyncio.create_subprocess_exec(*args, **options)
    out, _ = await soon(process.communicate())
    return process.returncode, out


async def ask(expression, **options):
    """What a Python expression is in a child."""
    code = f"import os; print(repr({expression}))"
    status, out = await run(sys.executable, "-I", "-S", "-c", code, **options)
    equal(status, 0, "exit code")
    return ast.literal_eval(out.decode())


@row("subprocess_exec(stdin=): PIPE, DEVNULL, a file, inherited")
async def stdin(loop, folder):
    (folder / "input").write_bytes(b"from the file")
    equal((await run("cat", stdin=DEVNULL))[1], b"")
    with (folder / "input").open("rb") as file:
        equal((await run("cat", stdin=file))[1], b"from the file")
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    equal(await soon(process.communicate(b"by the pipe")), (b"by the pipe", None))
    here = os.stat(0).st_ino
    equal(await ask("os.fstat(0).st_ino", stdin=None), here)


@row("subprocess_exec(stdout=): PIPE, DEVNULL, a file")
async def stdout(loop, folder):
    equal(await run("echo", "x"), (0, b"x\n"))
    equal(await run("echo", "x", stdout=DEVNULL), (0, None))
    with (folder / "output").open("wb") as file:
        await run("echo", "x", stdout=file)
    equal((folder / "output").read_bytes(), b"x\n")


@row("subprocess_exec(stderr=): PIPE, STDOUT, a file")
async def stderr(loop, folder):
    command = ("sh", "-c", "echo out; echo err >&2")
    equal(await run(*command, stderr=STDOUT), (0, b"out\nerr\n"))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    equal(await soon(process.communicate()), (b"out\n", b"err\n"))
    with (folder / "errors").open("wb") as file:
        await run(*command, stderr=file)
    equal((folder / "errors").read_bytes(), b"err\n")


@row("subprocess_shell(stdin=, stdout=, stderr=)")
async def shell(loop, folder):
    (folder / "input").write_bytes(b"in\n")
    with (folder / "input").open("rb") as source, (folder / "output").open("wb") as target:
        process = await asyncio.create_subprocess_shell(
            "cat; echo out; echo err >&2", stdin=source, stdout=target, stderr=STDOUT)
        equal(await soon(process.communicate()), (None, None))
    equal((folder / "output").read_bytes(), b"in\nout\nerr\n")


@row("text modes, buffers and shell= are refused with ValueError")
async def refused_options(loop):
    make = asyncio.SubprocessProtocol
    for option in ({"universal_newlines": True}, {"text": True}, {"encoding": "ascii"},
                   {"errors": "strict"}, {"bufsize": 10}, {"shell": True}):
        await refused(loop.subprocess_exec(make, "true", **option), ValueError)
    await refused(loop.subprocess_shell(make, "true", shell=False), ValueError)
    await refused(loop.subprocess_shell(make, ["true"]), ValueError)


@row("subprocess_shell(**kwargs=): cwd, env")
async def shell_options(loop, folder):
    process = await asyncio.create_subprocess_shell(
        "pwd; echo $MINE", stdout=PIPE, cwd=folder, env={"MINE": "yes"})
    out, _ = await soon(process.communicate())
    equal(out.decode(), f"{folder.resolve()}\nyes\n")


@row("subprocess_exec(**kwargs=): cwd")
async def cwd(loop, folder):
    equal(await ask("os.getcwd()", cwd=folder), str(folder.resolve()))


@row("**kwargs: env")
async def env(loop):
    equal(await run("/usr/bin/env", env={"MINE": "yes"}), (0, b"MINE=yes\n"))


@row("**kwargs: executable")
async def executable(loop):
    status, out = await run("called", "-c", "echo $0", "argument", executable="/bin/sh")
    equal((status, out), (0, b"argument\n"))


@row("**kwargs: pass_fds, close_fds")
async def pass_fds(loop):
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        os.set_blocking(reading, False)
        equal(await ask(f"os.write({writing}, b'x')", pass_fds=[writing]), 1)
        equal(os.read(reading, 10), b"x")
        check = f"os.path.exists('/proc/self/fd/{writing}')"
        equal(await ask(check), False)
        equal(await ask(check, close_fds=False), True)
    finally:
        os.close(reading)
        os.close(writing)


@row("**kwargs: preexec_fn")
async def preexec_fn(loop):
    equal(await ask("os.umask(0)", preexec_fn=lambda: os.umask(0o31)), 0o31)


@row("**kwargs: a preexec_fn that fails is a SubprocessError")
async def failing_preexec(loop):
    def fail():
        raise LookupError

    await refused(run("true", preexec_fn=fail), subprocess.SubprocessError)


@row("**kwargs: start_new_session")
async def start_new_session(loop):
    equal(await ask("os.getsid(0) == os.getpid()", start_new_session=True), True)
    equal(await ask("os.getsid(0)"), os.getsid(0))


@row("**kwargs: process_group")
async def process_group(loop):
    equal(await ask("os.getpgid(0) == os.getpid()", process_group=0), True)


@row("**kwargs: umask")
async def umask(loop):
    equal(await ask("os.umask(0)", umask=0o27), 0o27)


@row("**kwargs: restore_signals")
async def restore_signals(loop):
    # Python ignores this signal, in a child that is Python too.
    bit = 1 << (signal.SIGXFSZ - 1)
    found = {}
    for wanted in (True, False):
        _, out = await run("grep", "SigIgn", "/proc/self/status", restore_signals=wanted)
        found[wanted] = bool(int(out.split()[1], 16) & bit)
    equal(found, {True: False, False: True}, "SIGXFSZ ignored")


def as_root():
    if os.getuid():
        raise Unavailable("needs to be root")


@row("**kwargs: user, group, extra_groups")
async def user_and_groups(loop):
    as_root()
    _status, out = await run("sh", "-c", "id -u; id -g; id -G", cwd="/", user=65534, group=65533,
                            extra_groups=[65532, 65531])
    uid, gid, *groups = map(int, out.split())
    equal((uid, gid, sorted(groups)), (65534, 65533, [65531, 65532, 65533]))


@row("**kwargs: pipesize")
async def pipesize(loop):
    process = await asyncio.create_subprocess_exec(
        "cat", stdin=PIPE, stdout=DEVNULL, pipesize=1 << 17)
    pipe = process._transport.get_pipe_transport(0).get_extra_info("pipe")
    try:
        equal(fcntl.fcntl(pipe.fileno(), fcntl.F_GETPIPE_SZ), 1 << 17)
    finally:
        process.stdin.close()
        await soon(process.wait())

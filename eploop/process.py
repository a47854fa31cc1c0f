"""Child processes: subprocess.Popen starts them, a pidfd tells when they end.

Where there is no pidfd (Linux before 5.3, a seccomp filter, no descriptor left) a thread waits for
the child instead; it is reaped by the loop's thread in both cases, so that a signal can never
reach another process that got its number.

Source: CPython 3.13 asyncio.base_subprocess, asyncio.unix_events; waitid(2).
"""

import asyncio
import contextlib
import contextvars
import os
import signal
import subprocess
import threading
import warnings
from asyncio.log import logger

from eploop.pidfd import PidfdWatch

# What asyncio reports for a child that somebody else has reaped.
UNKNOWN_RETURNCODE = 255


async def start(loop, protocol, args, shell, stdin, stdout, stderr, bufsize, extra, options):
    """Start a process and connect its pipes; as asyncio's loops do for subprocess_exec().

    Args:
        options: Further keyword arguments of subprocess.Popen.

    Raises:
        OSError: The program cannot be started.
    """
    loop._check_closed()
    popen = subprocess.Popen(args, shell=shell, stdin=stdin, stdout=stdout, stderr=stderr,
                             universal_newlines=False, bufsize=bufsize, **options)
    transport = SubprocessTransport(loop, protocol, popen, extra)
    if loop.get_debug():
        program = args if isinstance(args, (bytes, str)) else args[0]
        logger.debug("process %r created: pid %s", program, popen.pid)
    try:
        await transport._connect_pipes()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        transport.close()
        try:
            await transport._wait()
        finally:
            close_pipes(popen)    # those that no pipe transport took over
        raise
    return transport


def watch(loop, pid, on_exit):
    """Call `on_exit(returncode)` once the child `pid` has ended, and was reaped."""
    try:
        return PidfdWatch(loop, pid, on_exit)
    except OSError as exc:
        if loop.get_debug():
            logger.debug("no pidfd for process %s, a thread waits for it: %s", pid, exc)
        return ThreadWatch(loop, pid, on_exit)


class SubprocessTransport(asyncio.SubprocessTransport):
    """A child process: asyncio.SubprocessTransport.

    Every callback of the protocol runs in one context, a copy of the creator's. wait() returns
    when the process has ended, even if another process keeps its pipes open (CPython's
    gh-119710); connection_lost() comes when the pipes are closed as well.
    """

    def __init__(self, loop, protocol, popen, extra):
        super().__init__(extra)
        self._extra["subprocess"] = popen
        self._loop = loop
        self._protocol = protocol
        self._context = contextvars.copy_context()
        self._proc = popen
        self._pid = popen.pid
        self._returncode = None
        self._closed = False
        self._finished = False
        self._exit_waiters = []
        self._pending_calls = []    # until connection_made was called; then None
        self._pipes = {}
        try:
            self._watch = watch(loop, popen.pid, self._process_exited)
        except BaseException:
            # Not even a thread.
            self._closed = True
            close_pipes(popen)
            popen.kill()
            popen.wait()
            raise

    def __repr__(self):
        info = ["SubprocessTransport"]
        if self._closed:
            info.append("closed")
        info.append(f"pid={self._pid}")
        info.append("running" if self._returncode is None else f"returncode={self._returncode}")
        for fd, pipe in self._pipes.items():
            info.append(f"{('stdin', 'stdout', 'stderr')[fd]}={pipe.transport}")
        return f"<{' '.join(info)}>"

    def __del__(self):
        if not self._closed:
            warnings.warn(f"unclosed transport {self!r}", ResourceWarning, stacklevel=2,
                          source=self)
            self.close()

    # ---- starting

    async def _connect_pipes(self):
        popen, loop = self._proc, self._loop
        if popen.stdin is not None:
            _, self._pipes[0] = await loop.connect_write_pipe(
                lambda: WritePipe(self, 0), popen.stdin)
        if popen.stdout is not None:
            _, self._pipes[1] = await loop.connect_read_pipe(
                lambda: ReadPipe(self, 1), popen.stdout)
        if popen.stderr is not None:
            _, self._pipes[2] = await loop.connect_read_pipe(
                lambda: ReadPipe(self, 2), popen.stderr)
        pending, self._pending_calls = self._pending_calls, None
        self._call(self._protocol.connection_made, self)
        for callback, args in pending:
            self._call(callback, *args)
        self._try_finish()
        made = loop.create_future()
        loop.call_soon(set_unless_done, made, None)
        await made

    def _call(self, callback, *args):
        """Call the protocol, in a turn of its own."""
        if self._pending_calls is not None:
            self._pending_calls.append((callback, args))
        else:
            self._loop.call_soon(callback, *args, context=self._context)

    # ---- what the pipes report

    def _pipe_data_received(self, fd, data):
        self._call(self._protocol.pipe_data_received, fd, data)

    def _pipe_connection_lost(self, fd, exc):
        self._call(self._protocol.pipe_connection_lost, fd, exc)
        self._try_finish()

    def _call_flow(self, method):
        callback = getattr(self._protocol, method)
        try:
            self._context.run(int)
        except RuntimeError:
            callback()      # entered already: one of the protocol's own callbacks is writing
        else:
            self._context.run(callback)

    # ---- the end

    def _process_exited(self, returncode):
        """The child was reaped; `returncode` is None if not by us."""
        popen = self._proc
        if returncode is None:
            returncode = popen.returncode      # Popen.poll() was faster
        if returncode is None:
            returncode = UNKNOWN_RETURNCODE
            logger.warning(
                "child process pid %d exit status already read: will report returncode 255",
                self._pid)
        if self._loop.get_debug():
            logger.info("%r exited with return code %r", self, returncode)
        self._returncode = popen.returncode = returncode
        self._call(self._protocol.process_exited)
        self._try_finish()
        for waiter in self._exit_waiters:
            set_unless_done(waiter, returncode)
        self._exit_waiters.clear()

    async def _wait(self):
        """Wait until the process has ended; its return code."""
        if self._returncode is None:
            waiter = self._loop.create_future()
            self._exit_waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._exit_waiters:
                    self._exit_waiters.remove(waiter)
        return self._returncode

    def _try_finish(self):
        if self._finished or self._returncode is None or self._pending_calls is not None:
            return
        if all(pipe.disconnected for pipe in self._pipes.values()):
            self._finished = True
            self._call(self._call_connection_lost)

    def _call_connection_lost(self):
        try:
            self._protocol.connection_lost(None)
        finally:
            self._protocol = self._proc = None

    def close(self):
        """Close the pipes, and kill the process if it still runs."""
        if self._closed:
            return
        self._closed = True
        if self._proc is None:
            return
        for pipe in self._pipes.values():
            pipe.transport.close()
        if self._returncode is None and self._watch.is_alive():
            if self._loop.get_debug():
                logger.warning("Close running child process: kill %r", self)
            # It may have ended meanwhile, or run as another user.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._proc.kill()

    def is_closing(self):
        return self._closed

    # ---- signals

    def send_signal(self, signal):
        """Send the process a signal; nothing happens if it ended and the protocol has to hear it.

        Raises:
            ProcessLookupError: It has ended, and connection_lost() was called.
        """
        if self._proc is None:
            raise ProcessLookupError(f"process {self._pid} has ended")
        with contextlib.suppress(ProcessLookupError):
            self._watch.send_signal(signal)

    def terminate(self):
        """Send SIGTERM: see `send_signal`."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """Send SIGKILL: see `send_signal`."""
        self.send_signal(signal.SIGKILL)

    # ---- asking

    def get_pid(self):
        return self._pid

    def get_returncode(self):
        return self._returncode

    def get_pipe_transport(self, fd):
        pipe = self._pipes.get(fd)
        return None if pipe is None else pipe.transport

    def set_protocol(self, protocol):
        self._protocol = protocol

    def get_protocol(self):
        return self._protocol


class WritePipe(asyncio.BaseProtocol):
    """The protocol of a pipe to the child; hands everything to the process."""

    def __init__(self, process, fd):
        self.process = process
        self.fd = fd
        self.transport = None
        self.disconnected = False

    @property
    def pipe(self):
        return self.transport      # the name of asyncio's class

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exc):
        process, self.process = self.process, None
        self.disconnected = True
        process._pipe_connection_lost(self.fd, exc)

    def pause_writing(self):
        self.process._call_flow("pause_writing")

    def resume_writing(self):
        self.process._call_flow("resume_writing")

    def __repr__(self):
        return f"<{type(self).__name__} fd={self.fd} pipe={self.transport!r}>"


class ReadPipe(WritePipe, asyncio.Protocol):
    """The protocol of a pipe from the child."""

    def data_received(self, data):
        self.process._pipe_data_received(self.fd, data)


class ThreadWatch:
    """Waits for the end of the child `pid` in a thread, and reaps it in the loop's.

    The same to its user as `PidfdWatch`.
    """

    def __init__(self, loop, pid, on_exit):
        self._loop = loop
        self._pid = pid
        self._on_exit = on_exit
        self._ended = False
        threading.Thread(target=self._wait, name=f"eploop-wait-{pid}", daemon=True).start()

    def _wait(self):
        # Reaped by somebody else: the loop's thread will find the same.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        try:
            self._loop.call_soon_threadsafe(self._reap)
        except RuntimeError:
            logger.warning("Loop that handles pid %d is closed", self._pid)
            reap(self._pid)

    def _reap(self):
        self._ended = True
        self._on_exit(reap(self._pid))

    def is_alive(self):
        """False once the child has ended, even if on_exit was not called yet."""
        if self._ended:
            return False
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._pid, options) is None
        except ChildProcessError:
            return False

    def send_signal(self, sig):
        """Signal the child; ProcessLookupError if it has ended and was reaped."""
        if self._ended:
            raise ProcessLookupError(f"process {self._pid} has ended")
        os.kill(self._pid, sig)


def reap(pid):
    """The return code of a child that has ended; None if somebody else took it."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def close_pipes(popen):
    """Close our ends of a process's pipes."""
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            pipe.close()


def set_unless_done(future, result):
    if not future.done():
        future.set_result(result)

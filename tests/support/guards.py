"""What every test must leave behind as it found it."""
import contextlib
import faulthandler
import gc
import os
import signal
import sys

# Beyond the limit the main thread gets an exception; one that is stuck in compiled code, where no
# Python signal handler runs, takes the whole process down this much later.
GRACE_S = 15.0


class TimeLimitExceeded(SystemExit):
    """The test ran for too long.

    A SystemExit, since loops hand every other exception of a callback to the exception handler
    and go on; and not a KeyboardInterrupt, which would end the whole run.
    """

    def __str__(self):
        return f"no end after {self.args[0]} s; the stacks are on stderr"


@contextlib.contextmanager
def time_limit(seconds, stderr):
    """Raise TimeLimitExceeded in the main thread after so many seconds, and again each second."""

    fired = False

    def on_alarm(signum, frame):
        nonlocal fired
        fired = True
        faulthandler.dump_traceback(stderr, all_threads=True)
        raise TimeLimitExceeded(seconds)

    before = signal.signal(signal.SIGALRM, on_alarm)
    faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=stderr)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
    if fired:       # and something swallowed the exception
        raise TimeLimitExceeded(seconds)


def open_descriptors():
    """The open descriptors of this process, each with what it refers to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):    # the one that lists the folder
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def descriptor_changes(before, after):
    """One line for each descriptor that was opened, closed or replaced."""
    return [
        f"fd {fd}: {before.get(fd, 'closed')} -> {after.get(fd, 'closed')}"
        for fd in sorted(before.keys() | after.keys())
        if before.get(fd) != after.get(fd)
    ]


def signal_state():
    """The wake-up descriptor and the handlers that a loop may have to restore."""
    wakeup_fd = signal.set_wakeup_fd(-1)
    if wakeup_fd != -1:
        signal.set_wakeup_fd(wakeup_fd)
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
    return {"wakeup fd": wakeup_fd, **{sig.name: signal.getsignal(sig) for sig in watched}}


class Unraisable:
    """Collects what destructors and the like could not raise, ResourceWarning included."""

    def __init__(self):
        self.texts = []

    def __enter__(self):
        self._before = sys.unraisablehook
        sys.unraisablehook = self._note
        return self

    def __exit__(self, *exc_info):
        gc.collect()
        sys.unraisablehook = self._before

    def _note(self, unraisable):
        # Text only: holding the object or the traceback would keep alive what is being freed.
        what = unraisable.err_msg or "Exception ignored in"
        self.texts.append(f"{what} {unraisable.object!r}: {unraisable.exc_value!r}")


class UnhandledContexts:
    """An exception handler that keeps what it is given."""

    def __init__(self):
        self.contexts = []

    def __call__(self, loop, context):
        self.contexts.append(context)

    def __len__(self):
        return len(self.contexts)

    def take(self):
        """Hand over the contexts; what is not taken fails the test."""
        taken, self.contexts = self.contexts, []
        return taken

    def take_one(self):
        taken = self.take()
        assert len(taken) == 1, taken
        return taken[0]

"""Runs one module of `test.test_asyncio` and tells, line by line, what becomes of each test.

    python stdlib_child.py MODULE MODE EVENTS SELECTION

MODE is a mode of eploop, or "asyncio" for the stock loop. EVENTS is the file to append JSON lines
to, SELECTION a JSON file with the names that are not to be run and the limit for one test.
"""
import faulthandler
import fnmatch
import importlib
import json
import os
import signal
import sys
import traceback
import unittest

# The same tests again on another selector or child watcher: with a loop that has neither, once is
# enough.
SAME_AGAIN = frozenset({
    "PollEventLoopTests", "SelectEventLoopTests", "SubprocessSafeWatcherTests",
    "SubprocessFastWatcherTests", "SubprocessPidfdWatcherTests",
})


class Events:
    """The lines for the parent; silent in processes forked by a test."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.pid = os.getpid()

    def write(self, **event):
        if os.getpid() == self.pid:
            os.write(self.fd, json.dumps(event).encode() + b"\n")


def name_of(test):
    """MODULE.CLASS.TEST."""
    return ".".join(test.id().split(".")[-3:])


class Result(unittest.TestResult):
    def __init__(self, events, limit_s):
        super().__init__()
        self.events, self.limit_s = events, limit_s
        self.outcome, self.message = None, ""

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.message = None, ""
        self.events.write(event="start", name=name_of(test))
        faulthandler.dump_traceback_later(self.limit_s, exit=True)

    def stopTest(self, test):
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self.events.write(
            event="end", name=name_of(test), outcome=self.outcome or "passed",
            message=self.message[-2000:],
        )

    def _failed(self, test, err):
        text = "".join(traceback.format_exception(*err))
        if isinstance(test, unittest.TestCase):
            self.outcome = "failed"
            self.message += text
        else:       # a fixture of a class or of the module
            self.events.write(event="end", name=str(test), outcome="failed", message=text)

    addError = addFailure = _failed

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(test, err)

    def addUnexpectedSuccess(self, test):
        self.outcome, self.message = "failed", "unexpected success"

    def addSkip(self, test, reason):
        if isinstance(test, unittest.TestCase):
            self.outcome, self.message = "skipped", reason


def kept(suite, unwanted):
    """The suite without what is not to be run; classes stay together for their fixtures."""
    result = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            result.addTest(kept(test, unwanted))
        elif type(test).__name__ not in SAME_AGAIN and not any(
            fnmatch.fnmatchcase(name_of(test), pattern) for pattern in unwanted
        ):
            result.addTest(test)
    return result


def names(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield name_of(test)


def main():
    module_name, mode, events_path, selection_path = sys.argv[1:]
    sys.argv[1:] = []
    with open(selection_path) as file:
        selection = json.load(file)
    # A job in the background of a shell has it ignored, and the tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if mode != "asyncio":
        import stdlib_inject

        stdlib_inject.install(mode)
    events = Events(events_path)
    module = importlib.import_module(f"test.test_asyncio.{module_name}")
    suite = kept(unittest.defaultTestLoader.loadTestsFromModule(module), selection["skip"])
    if selection["only"] is not None:
        wanted = set(selection["only"])
        unwanted = [name for name in names(suite) if name not in wanted]
        suite = kept(suite, unwanted)
    events.write(event="plan", names=list(names(suite)))
    suite.run(Result(events, selection["limit_s"]))
    events.write(event="done")
    sys.stderr.flush()
    os._exit(0)     # threads that a test left behind are no reason to wait


if __name__ == "__main__":
    faulthandler.enable()
    main()

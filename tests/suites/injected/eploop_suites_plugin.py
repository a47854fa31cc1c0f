"""pytest plugin of the child: chooses the tests, and tells line by line what becomes of each."""
import faulthandler
import fnmatch
import json
import os

import pytest

# pytest captures the descriptor later; the stacks of a hang are for the parent to read.
STDERR = os.dup(2)


class Teller:
    def __init__(self, events, selection):
        with open(selection) as file:
            self.selection = json.load(file)
        self.events = os.open(events, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.pid = os.getpid()
        self.outcome, self.message = None, ""

    def tell(self, **event):
        if os.getpid() == self.pid:     # and not a process that a test has forked
            os.write(self.events, json.dumps(event).encode() + b"\n")

    def wanted(self, name):
        chosen = self.selection
        if chosen["alone"] is not None:
            return name == chosen["alone"]
        return fnmatch.fnmatchcase(name, chosen["only"]) and not any(
            fnmatch.fnmatchcase(name, pattern) for pattern in chosen["skip"])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self.wanted(item.nodeid)]
        self.tell(event="plan", names=[item.nodeid for item in items])
        done = set(self.selection["done"])
        items[:] = [item for item in items if item.nodeid not in done]

    def pytest_collectreport(self, report):
        if report.failed:
            self.tell(event="end", name=report.nodeid, outcome="failed",
                      message=str(report.longrepr)[-2000:])

    def pytest_runtest_logstart(self, nodeid):
        self.outcome, self.message = None, ""
        self.tell(event="start", name=nodeid)
        faulthandler.dump_traceback_later(self.selection["limit_s"], exit=True, file=STDERR)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.outcome = "failed"
            self.message += f"{report.longrepr}\n"
        elif report.skipped and self.outcome is None and not hasattr(report, "wasxfail"):
            self.outcome = "skipped"

    def pytest_runtest_logfinish(self, nodeid):
        faulthandler.cancel_dump_traceback_later()
        self.tell(event="end", name=nodeid, outcome=self.outcome or "passed",
                  message=self.message[-2000:])

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        self.tell(event="finished")
        if os.getpid() == self.pid:
            os._exit(0)     # threads that a test left behind are no reason to wait


def pytest_configure(config):
    # Taken out, so that a pytest which a test starts tells nothing.
    events = os.environ.pop("EPLOOP_SUITES_EVENTS", None)
    if events is not None:
        teller = Teller(events, os.environ["EPLOOP_SUITES_SELECTION"])
        config.pluginmanager.register(teller, "eploop-suites-teller")

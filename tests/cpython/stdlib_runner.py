"""Runs modules of Python's own asyncio tests in child processes, and judges the outcome."""
import fnmatch
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from support.features import missing

HERE = Path(__file__).parent
TEST_LIMIT_S = 60
MODULE_LIMIT_S = 600
RETRIES = 1


def has_suite():
    """Whether this Python came with its tests."""
    try:
        return importlib.util.find_spec("test.test_asyncio") is not None
    except ModuleNotFoundError:
        return False


def exists(module):
    return importlib.util.find_spec(f"test.test_asyncio.{module}") is not None


@dataclass(frozen=True)
class Expected:
    """One entry of expected.toml: tests that do not pass, and why that is right."""

    pattern: str
    reason: str
    flaky: bool

    def matches(self, name):
        return fnmatch.fnmatchcase(name, self.pattern)


def read_toml(name):
    with (HERE / name).open("rb") as file:
        return tomllib.load(file)


def modules():
    """The modules to run, with what each needs of the loop."""
    return read_toml("modules.toml")["modules"]


def pending_patterns():
    """Tests of parts of the loop that are not finished."""
    return [
        pattern
        for entry in read_toml("modules.toml").get("pending", ())
        if missing([entry["feature"]])
        for pattern in entry["tests"]
    ]


def expected_failures(python=None):
    """The entries that hold for a Python version, by default this one."""
    python = python or "{}.{}".format(*sys.version_info)
    return [
        Expected(pattern, entry["reason"], entry.get("flaky", False))
        for entry in read_toml("expected.toml")["expected"]
        if python in entry.get("python", (python,))
        for pattern in entry["tests"]
    ]


@dataclass
class ModuleRun:
    """What became of the tests of one module."""

    module: str
    mode: str
    results: dict = field(default_factory=dict)     # name -> (outcome, message)
    plan: list = field(default_factory=list)
    log: str = ""

    def run(self, folder, skip=()):
        """Run children until every test has had its chance; a hang or a crash costs one."""
        skip = list(skip)
        for attempt in range(1 + len(self.plan) if self.plan else 50):
            before = len(self.results)
            if self._child(folder / f"{attempt}", [*skip, *self.results], None):
                break
            if len(self.results) == before:
                self.results[f"{self.module}.<child>"] = ("crashed", self.log[-2000:])
                break
        for name in self.plan:
            self.results.setdefault(name, ("crashed", "never run"))
        failed = [name for name, (outcome, _) in self.results.items() if outcome == "failed"]
        for attempt in range(RETRIES):
            for name in failed[:10]:
                self._again(folder / f"again-{attempt}-{name}", name)
        return self

    def _again(self, folder, name):
        """One more try in a process of its own: the suite has tests that race with the clock."""
        first = self.results.pop(name)
        self._child(folder, [], [name])
        if self.results.get(name, first)[0] not in ("passed", "skipped"):
            self.results[name] = first

    def _child(self, folder, skip, only):
        """Run one child; true if it came to the end."""
        folder.mkdir()
        events, selection, log = folder / "events", folder / "selection", folder / "log"
        selection.write_text(json.dumps({"skip": skip, "only": only, "limit_s": TEST_LIMIT_S}))
        events.touch()
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, HERE / "stdlib_child.py", self.module, self.mode, events,
                 selection],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
                env=child_environment(self.mode), start_new_session=True,
            )
            try:
                child.wait(MODULE_LIMIT_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        self.log = log.read_text(errors="replace")
        return self._read(events, child.returncode)

    def _read(self, path, returncode):
        running, done = None, False
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "plan":
                self.plan = self.plan or event["names"]
            elif event["event"] == "start":
                running = event["name"]
            elif event["event"] == "end":
                self.results[event["name"]] = (event["outcome"], event["message"])
                running = None
            else:
                done = True
        if running is not None:
            hung = "Timeout (" in self.log
            outcome = "hung" if hung else "crashed"
            self.results[running] = (outcome, f"exit status {returncode}\n{self.log[-2000:]}")
        return done

    def judge(self, expected):
        """The lines that speak against this run, none if all is as it should be."""
        complaints = []
        for name, (outcome, message) in sorted(self.results.items()):
            entry = next((entry for entry in expected if entry.matches(name)), None)
            if outcome in ("failed", "hung", "crashed") and entry is None:
                complaints.append(f"{outcome}: {name}\n{message}")
            elif outcome == "passed" and entry is not None and not entry.flaky:
                complaints.append(f"passes, take it out of expected.toml: {name}")
        return complaints

    def counts(self):
        outcomes = [outcome for outcome, _ in self.results.values()]
        return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


def child_environment(mode):
    environment = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("PYTHONASYNCIO", "PYTHONDEV", "PYTHONWARNINGS", "EPLOOP_"))
    }
    path = []
    if mode != "asyncio":
        import eploop

        path.append(str(Path(eploop.__file__).parent.parent))
    if environment.get("PYTHONPATH"):
        path.append(environment["PYTHONPATH"])
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}

"""Runs a suite in child processes, and collects what becomes of each test."""
import fnmatch
import json
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
RETRIED = 20            # failed tests that get a second chance, at most
CHILD_LIMIT_S = 1800
BAD = ("failed", "hung", "crashed")


class SuiteRun:
    """One suite in one mode; `results` has (outcome, message) by the test's name."""

    def __init__(self, place, suite, mode, only, limit_s):
        self.place, self.suite, self.mode = place, suite, mode
        self.only, self.limit_s = only, limit_s
        self.results = {}
        self.plan = None

    def run(self):
        with tempfile.TemporaryDirectory(prefix="eploop-suites-") as folder:
            self.folder = Path(folder)
            (self.folder / "path").mkdir()
            # A folder with nothing else in it, so that no other module is found here by chance.
            (self.folder / "path" / "eploop").symlink_to(REPOSITORY / "eploop")
            self._run_all()
            failed = [name for name, result in self.results.items() if result[0] == "failed"]
            for name in failed[:RETRIED]:
                self._run_again(name)
        return self

    def _run_all(self):
        """Start children until every test has had its turn; a hang or a crash costs one test."""
        finished = False
        while not finished:
            before = len(self.results)
            finished, log = self._child(done=list(self.results))
            if not finished and len(self.results) == before:
                self.results["the run itself"] = ("crashed", log)
                return
        for name in self.plan or ():
            self.results.setdefault(name, ("crashed", "it was never run"))

    def _run_again(self, name):
        first = self.results.pop(name)
        self._child(alone=name)
        if self.results.get(name, first)[0] in BAD:
            self.results[name] = first

    def _child(self, done=(), alone=None):
        """Run one child: whether it came to its end, and the end of what it printed."""
        events, selection = self.folder / "events", self.folder / "selection"
        events.write_text("")
        selection.write_text(json.dumps({
            "skip": [*self.suite["skip"]], "done": list(done), "alone": alone, "only": self.only,
            "limit_s": self.limit_s,
        }))
        log = self.folder / "log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                [self.place.python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                 "-p", "eploop_suites_plugin", *self.suite["pytest"], *self._files()],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.place.sources,
                env=self._environment(events, selection), start_new_session=True)
            try:
                child.wait(CHILD_LIMIT_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        text = log.read_text(errors="replace")[-3000:]
        return self._read(events, child.returncode, text), text

    def _files(self):
        """The test files, relative to the sources."""
        found = sorted(
            path.relative_to(self.place.sources).as_posix()
            for pattern in self.suite["files"] for path in self.place.sources.glob(pattern))
        return [path for path in found
                if not any(fnmatch.fnmatchcase(path, pattern) for pattern in self.suite["ignore"])]

    def _environment(self, events, selection):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "PYTEST", "EPLOOP"))}
        kept.update(
            PYTHONPATH=os.pathsep.join([str(HERE / "injected"), str(self.folder / "path")]),
            PYTHONDONTWRITEBYTECODE="1",
            HYPOTHESIS_STORAGE_DIRECTORY=str(self.folder / "hypothesis"),
            EPLOOP_SUITES_MODE=self.mode,
            EPLOOP_SUITES_EVENTS=str(events),
            EPLOOP_SUITES_SELECTION=str(selection),
        )
        if self.mode != "asyncio":
            kept["EPLOOP_MODE"] = self.mode
        if "stand_in" in self.suite:
            kept["EPLOOP_SUITES_STAND_IN"] = str(self.place.sources / self.suite["stand_in"])
        return kept

    def _read(self, events, returncode, log):
        """Take over what the child told; true if it came to its end."""
        running, finished = None, False
        for line in events.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "plan":
                self.plan = self.plan if self.plan is not None else event["names"]
            elif event["event"] == "start":
                running = event["name"]
            elif event["event"] == "end":
                self.results[event["name"]] = (event["outcome"], event["message"])
                running = None
            else:
                finished = True
        if running is not None:
            outcome = "hung" if "Timeout (" in log else "crashed"
            self.results[running] = (outcome, f"exit status {returncode}\n{log}")
        return finished

"""Child processes that answer lines with lines of JSON, and never outlive the harness."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
ANSWER_S = 60.0
EXIT_S = 10.0
# Debug settings of the caller's shell would be measured too.
UNWANTED_VARIABLES = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONTRACEMALLOC")


class ChildFailed(RuntimeError):
    """A child process ended, hung or answered nonsense; the text says which."""


def python_module(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of this folder in a new interpreter."""
    return [sys.executable, "-m", f"bench.{module}", *map(str, arguments)]


class Child:
    """A process with a line protocol on its stdin and stdout, as a context manager.

    It gets a session of its own, so that Ctrl-C reaches only the harness, and it takes the end of
    its stdin as the order to leave, so that it goes even if the harness is killed.
    """

    def __init__(self, command: list[str]) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_VARIABLES}
        self._name = " ".join(Path(word).name for word in command[:8])
        self._pending = b""
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stdin.close()
        try:
            if exc_info[0] is None:
                self._wait()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._selector.close()
            sys.stderr.write(self._stderr())
            self._complaints.close()

    def tell(self, word: str) -> None:
        """Sends one line.

        Raises:
            ChildFailed: The child has ended.
        """
        try:
            self._process.stdin.write(word.encode() + b"\n")
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Waits for one line and decodes it.

        Raises:
            ChildFailed: The child ended or stayed silent for `timeout_s`.
        """
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if not self._selector.select(deadline_s - time.monotonic()):
                raise ChildFailed(f"no answer within {timeout_s:.0f} s from {self._name}")
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                raise self._ended()
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)

    def ask(self, word: str, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Sends one line and waits for the answer."""
        self.tell(word)
        return self.answer(timeout_s)

    def _wait(self) -> None:
        try:
            status = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"did not leave when told to: {self._name}") from None
        if status != 0:
            raise self._ended()

    def _ended(self) -> ChildFailed:
        status = self._process.wait()
        last_line = "".join(self._stderr().splitlines()[-1:])
        return ChildFailed(f"exit status {status} from {self._name}: {last_line}")

    def _stderr(self) -> str:
        """What the child wrote there; to be read once it has ended, as the offset is shared."""
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")

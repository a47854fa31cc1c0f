"""One line that says what is going on, rewritten in place on a terminal."""

import sys
import time
from typing import TextIO


class Progress:
    """Counts steps towards a known total; the first step sets the clock."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._stream = stream
        self._done = 0
        self._began_s = time.monotonic()

    def step(self, what: str) -> None:
        """Shows the step that begins now."""
        line = f"[{self._done + 1}/{self._total}]{self._time_left()} {what}"
        self._done += 1
        before, after = ("\r\x1b[K", "") if self._stream.isatty() else ("", "\n")
        self._stream.write(before + line + after)
        self._stream.flush()

    def end(self) -> None:
        """Removes the line from a terminal."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _time_left(self) -> str:
        if self._done < 3:
            return ""
        each_s = (time.monotonic() - self._began_s) / self._done
        minutes, seconds = divmod(round(each_s * (self._total - self._done)), 60)
        return f" {minutes}:{seconds:02} left,"

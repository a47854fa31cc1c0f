"""What the user sees: a progress line while it works, and the table at the end."""

import sys
from collections.abc import Sequence
from typing import TextIO


class Progress:
    """One line on stderr: rewritten in place on a terminal, else printed when it changes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._in_place = self._stream.isatty()
        self._shown = ""

    def show(self, where: str, detail: str) -> None:
        """Shows where the work is; the detail only where the line can be rewritten."""
        if self._in_place:
            self._stream.write(f"\r\x1b[K{where}: {detail}")
            self._stream.flush()
        elif where != self._shown:
            print(where, file=self._stream, flush=True)
        self._shown = where

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if self._in_place and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def aligned(rows: Sequence[Sequence[str]], left_columns: int) -> str:
    """Lays out rows, the first columns to the left and the figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if number < left_columns else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

"""What became of a row: the words in the cells of the table."""
import re
from dataclasses import dataclass

from surface.rows import Unavailable

# How Python words it when there is no such parameter, attribute or method.
MISSING = re.compile(
    r"unexpected (keyword|kwargs)|invalid keyword|(?<!'NoneType' object has )no attribute|"
    r"takes (no|exactly|at most|from)|positional argument"
)
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Outcome:
    """One cell.

    Attributes:
        word: "ok", "missing", "wrong", "raises X", "hangs", "crashes", or "n/a" where this machine
            or Python cannot show it.
        detail: Why.
    """

    word: str
    detail: str = ""

    @property
    def is_good(self):
        return self.word in ("ok", "n/a")


def of_exception(exc):
    """The outcome of a row that raised."""
    detail = ADDRESS.sub("0x…", " ".join(f"{exc}".split()))[:DETAIL_CHARACTERS]
    if isinstance(exc, Unavailable):
        return Outcome("n/a", detail)
    if isinstance(exc, AssertionError):
        return Outcome("wrong", detail)
    if isinstance(exc, TimeoutError) and not exc.args:
        return Outcome("hangs", "waited in vain")
    if isinstance(exc, NotImplementedError):
        return Outcome("missing", "NotImplementedError")
    if isinstance(exc, (TypeError, AttributeError, ValueError)) and MISSING.search(detail):
        return Outcome("missing", detail)
    return Outcome(f"raises {type(exc).__name__}", detail)

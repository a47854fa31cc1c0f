"""Prints the table, and writes it as documentation."""
import argparse
import sys
from pathlib import Path

from surface.contain import probe
from surface.kinds import KINDS, NAMES
from surface.rows import all_rows
from surface.sabotage import unnoticed
from surface.table import markdown, report, text

HELP = "Call everything in asyncio's interface, on each loop at hand, and print what came of it."


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python tests/surface", description=HELP)
    parser.add_argument("--loops", default=",".join(NAMES), help="comma separated")
    parser.add_argument("--only", default="", help="rows whose subject or name contains this")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to FILE")
    parser.add_argument("--verbose", action="store_true", help="show what the rows print")
    parser.add_argument("--sabotage", action="store_true",
                        help="name the parameters whose rows cannot fail, and print no table")
    options = parser.parse_args(arguments)
    unknown = set(options.loops.split(",")) - set(NAMES)
    if unknown:
        parser.error(f"--loops: unknown {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    kinds = [KINDS[name] for name in options.loops.split(",") if KINDS[name].is_available()]
    rows = [row for row in all_rows() if options.only.lower() in str(row).lower()]
    if options.sabotage:
        found = [f"{method}({name}=)" for method, name in unnoticed(rows, kinds[-1])]
        print("\n".join(found) or "every parameter would be missed")
        return int(bool(found))
    cells = {}
    for number, row in enumerate(rows, 1):
        if sys.stderr.isatty():
            print(f"\r\033[K{number}/{len(rows)} {row}"[:100], end="", file=sys.stderr)
        for kind in kinds:
            cells[row, kind] = probe(row, kind, verbose=options.verbose)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(text(rows, kinds, cells))
    print(report(rows, kinds, cells))
    if options.markdown:
        options.markdown.write_text(markdown(rows, kinds, cells))
    ours = [cell for (_, kind), cell in cells.items() if kind.package == "eploop"]
    return int(not all(cell.is_good for cell in ours))

"""Runs the tests of uvloop and of AnyIO on eploop.

    python tests/suites                              both, in edge mode
    python tests/suites uvloop --modes edge,level    one of them, in two modes
    python tests/suites anyio --modes asyncio        on asyncio's own loop, for comparison
    python tests/suites uvloop --only '*Test_UV_TCP::*'

The projects' sources are fetched by pip into a cache folder; nothing in them is changed. A test
that fails is run once more by itself. What fails for a good reason is named in explained.toml.

The exit status is 1 if a test fails that is not named there, or one passes that is.
"""
import argparse
import signal
import sys
from pathlib import Path

import fetching
import judging
import running

MODES = ("edge", "oneshot", "level", "asyncio")


def parsed(arguments):
    known = fetching.suites()
    parser = argparse.ArgumentParser(
        prog="python tests/suites", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*known, []], metavar="suite",
                        help=f"{' or '.join(known)}; all of them if none is named")
    parser.add_argument("--modes", default="edge",
                        help=f"comma separated: {', '.join(MODES)}; default edge")
    parser.add_argument("--only", default="*", metavar="PATTERN",
                        help="run only the tests whose name matches, as in explained.toml")
    parser.add_argument("--limit", type=float, default=40, metavar="S",
                        help="seconds for one test; default 40")
    parser.add_argument("--cache", type=Path, default=fetching.default_cache(),
                        help="folder for what is fetched; default %(default)s")
    options = parser.parse_args(arguments)
    options.modes = options.modes.split(",")
    unknown = set(options.modes) - set(MODES)
    if unknown:
        parser.error(f"unknown mode {', '.join(sorted(unknown))}")
    return options, {name: known[name] for name in options.suites or known}


def main(arguments=None):
    options, suites = parsed(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell leaves it to what it starts in the background, and the suites would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    complaints = []
    for name, suite in suites.items():
        place = fetching.fetch(options.cache, name, suite)
        for mode in options.modes:
            print(f"{name} {suite['version']} on {mode}", flush=True)
            run = running.SuiteRun(place, suite, mode, options.only, options.limit).run()
            verdict = judging.judge(run.results, judging.explained(name, mode))
            print(verdict.summary(), flush=True)
            complaints += [f"{name}, {mode}: {complaint}" for complaint in verdict.complaints]
    for complaint in complaints:
        print(f"\n{complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

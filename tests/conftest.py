"""Fixtures and guards for all tests; `support/` says what each of them means."""
import gc
import inspect
import os
import signal

import pytest
from support.guards import (
    UnhandledContexts,
    Unraisable,
    descriptor_changes,
    open_descriptors,
    signal_state,
    time_limit,
)
from support.loops import EPLOOP_MISSING, EPLOOP_REQUIRED, MODES, specs_for

TIME_LIMIT_S = 20.0
MARKERS = (
    "needs(*features): uses parts of the loop that may still be missing",
    "differs_from_asyncio(reason, since, below): asyncio behaves otherwise",
    "eploop_only(reason): asyncio has no such thing",
    "only_mode(name): a promise of one mode",
    "debug_modes(on, reason): runs with this debug setting only",
    "time_limit(seconds): another limit than 20 s",
    "unguarded(reason): leaves descriptors, signals or garbage behind on purpose",
)
_failed = pytest.StashKey[bool]()
_stderr = pytest.StashKey[int]()


def pytest_addoption(parser):
    group = parser.getgroup("eploop")
    group.addoption(
        "--loops",
        default=",".join(("asyncio", *MODES)),
        help="comma separated: asyncio, edge, oneshot, level",
    )
    group.addoption(
        "--stdlib-modes",
        default=os.environ.get("EPLOOP_STDLIB_MODES", "edge"),
        help="modes that Python's own suite runs in; default EPLOOP_STDLIB_MODES or edge",
    )
    group.addoption(
        "--check-differences",
        action="store_true",
        help="run the tests that differ from asyncio there too, where they must fail",
    )
    group.addoption(
        "--all-tls-paths",
        action="store_true",
        help="run the TLS tests through Python's ssl module in every mode, not in edge mode only",
    )


def pytest_configure(config):
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    unknown = set(config.option.loops.split(",")) - {"asyncio", *MODES}
    if unknown:
        raise pytest.UsageError(f"--loops: unknown {', '.join(sorted(unknown))}")
    if EPLOOP_MISSING and EPLOOP_REQUIRED:
        raise pytest.UsageError(EPLOOP_MISSING)
    config.stash[_stderr] = os.dup(2)       # before pytest captures it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell leaves it to what it starts in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config):
    os.close(config.stash[_stderr])


def pytest_report_header(config):
    return f"{EPLOOP_MISSING}: its tests are left out" if EPLOOP_MISSING else None


def pytest_generate_tests(metafunc):
    if "loop_spec" in metafunc.fixturenames:
        option = metafunc.config.option
        specs = specs_for(
            metafunc.definition.iter_markers,
            option.loops.split(","),
            check_differences=option.check_differences,
        )
        # An empty list would be reported as a skipped test; this one is taken out below.
        metafunc.parametrize("loop_spec", specs or [pytest.param(None, id="no-loop")])


def pytest_collection_modifyitems(config, items):
    kept, without_loop = [], []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        (without_loop if params.get("loop_spec", ...) is None else kept).append(item)
    if without_loop:
        config.hook.pytest_deselected(items=without_loop)
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run `async def` tests that take the `loop` fixture on that loop."""
    loop = pyfuncitem.funcargs.get("loop")
    if loop is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    loop.run_until_complete(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(autouse=True, scope="module")
def small_garbage_heap():
    """Take what exists already out of the collector's way: each test ends with a collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def guards(request):
    """Fail the test that leaves something behind, or does not end."""
    marker = request.node.get_closest_marker("time_limit")
    limit = marker.args[0] if marker else TIME_LIMIT_S
    signals, descriptors = signal_state(), open_descriptors()
    with Unraisable() as unraisable, time_limit(limit, request.config.stash[_stderr]):
        yield
    # A failed test has its locals kept alive by the traceback: one message is enough.
    if request.node.stash.get(_failed, False) or request.node.get_closest_marker("unguarded"):
        return
    assert not unraisable.texts, "\n".join(unraisable.texts)
    changes = descriptor_changes(descriptors, open_descriptors())
    assert not changes, "descriptors changed:\n" + "\n".join(changes)
    assert signal_state() == signals


@pytest.fixture
def unhandled(request):
    """What the exception handlers of this test's loops were given; take it, or the test fails."""
    contexts = UnhandledContexts()
    yield contexts
    if not request.node.stash.get(_failed, False):
        assert not contexts.contexts, "unhandled exceptions"


@pytest.fixture
def loop_factory(loop_spec, unhandled):
    """Makes loops of the wanted kind, and closes them at the end."""
    made = []

    def factory():
        loop = loop_spec.make()
        loop.set_exception_handler(unhandled)
        made.append(loop)
        return loop

    yield factory
    try:
        for loop in made:
            if not loop.is_closed():
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        for loop in made:
            loop.close()


@pytest.fixture
def loop(loop_factory):
    return loop_factory()

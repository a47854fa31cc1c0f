"""Python's own asyncio tests, as installed with this Python, run on eploop.

    pytest tests/cpython                                    edge mode
    pytest tests/cpython --stdlib-modes edge,oneshot,level  all modes
    pytest tests/cpython --stdlib-modes asyncio             the stock loop: shows that the runner
                                                            itself does no harm
"""
import pytest
import stdlib_runner
from support.features import missing
from support.loops import EPLOOP_MISSING

pytestmark = [
    pytest.mark.time_limit(2 * stdlib_runner.MODULE_LIMIT_S),
    pytest.mark.skipif(
        not stdlib_runner.has_suite(),
        reason="this Python came without test.test_asyncio, the tests of its standard library",
    ),
]


def pytest_generate_tests(metafunc):
    if "mode" in metafunc.fixturenames:
        modes = metafunc.config.option.stdlib_modes.split(",")
        if EPLOOP_MISSING:
            modes = [mode for mode in modes if mode == "asyncio"]
        metafunc.parametrize("mode", modes)


@pytest.mark.parametrize("module", stdlib_runner.modules())
def test_module(module, mode, tmp_path):
    if not stdlib_runner.exists(module):
        pytest.skip(f"this Python has no test.test_asyncio.{module}")
    on_asyncio = mode == "asyncio"
    unfinished = missing(stdlib_runner.modules()[module].get("needs", ()))
    if unfinished and not on_asyncio:
        pytest.skip(f"eploop has no {', '.join(sorted(unfinished))} yet")
    run = stdlib_runner.ModuleRun(module, mode)
    run.run(tmp_path, () if on_asyncio else stdlib_runner.pending_patterns())
    print(module, mode, run.counts())
    complaints = run.judge([] if on_asyncio else stdlib_runner.expected_failures())
    if complaints:
        pytest.fail("\n\n".join(complaints), pytrace=False)
    assert run.counts().get("passed"), "nothing was run"


def test_every_expectation_has_a_reason_and_a_known_module():
    for entry in stdlib_runner.read_toml("expected.toml")["expected"]:
        assert len(entry["reason"]) > 20
        assert set(entry) <= {"tests", "python", "reason", "flaky"}
        for pattern in entry["tests"]:
            assert pattern.split(".")[0] in stdlib_runner.modules()

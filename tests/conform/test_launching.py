"""How programs get an eploop loop: run, loop_factory, policy, install, the command line."""
import asyncio
import contextlib
import os
import subprocess
import sys
import warnings

import pytest
from support.loops import EPLOOP_MISSING, MODES

if EPLOOP_MISSING:
    pytest.skip(EPLOOP_MISSING, allow_module_level=True)

import eploop

has_policies = pytest.mark.skipif(
    not hasattr(asyncio, "set_event_loop_policy"), reason="asyncio has no policies"
)
ALL_MODES = r"(?s)(?=.*edge)(?=.*oneshot)(?=.*level)"


@pytest.fixture(autouse=True)
def no_mode_in_the_environment(monkeypatch):
    monkeypatch.delenv("EPLOOP_MODE", raising=False)


@pytest.fixture
def policy_restored():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = asyncio.get_event_loop_policy()
        yield
        asyncio.set_event_loop_policy(before)


async def current_loop():
    await asyncio.sleep(0)
    return asyncio.get_running_loop()


def child(*args, env=None, code=0):
    """Run `python ...` and give its output."""
    done = subprocess.run(
        [sys.executable, *map(str, args)], capture_output=True, text=True, timeout=15,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(env or {})},
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", MODES)
def test_new_event_loop(mode):
    loop = eploop.new_event_loop(mode=mode)
    assert isinstance(loop, eploop.Loop)
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert loop.mode == mode
    loop.close()


def test_mode_may_be_positional():
    loop = eploop.new_event_loop("level")
    assert loop.mode == "level"
    loop.close()


def test_default_mode():
    loop = eploop.new_event_loop()
    assert loop.mode == "edge"
    loop.close()


@pytest.mark.parametrize("mode", MODES)
def test_loop_class(mode):
    loop = eploop.Loop(mode=mode)
    assert loop.mode == mode
    loop.close()


@pytest.mark.parametrize("mode", MODES)
def test_mode_from_the_environment(monkeypatch, mode):
    monkeypatch.setenv("EPLOOP_MODE", mode)
    for make in (eploop.new_event_loop, eploop.Loop, eploop.loop_factory()):
        loop = make()
        assert loop.mode == mode
        loop.close()


def test_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("EPLOOP_MODE", "level")
    loop = eploop.new_event_loop(mode="oneshot")
    assert loop.mode == "oneshot"
    loop.close()


@pytest.mark.parametrize("bad", ["", "EDGE", "edge ", "epoll", "Level"])
def test_unknown_mode_is_refused(bad):
    for make in (
        lambda: eploop.new_event_loop(mode=bad),
        lambda: eploop.Loop(mode=bad),
        lambda: eploop.loop_factory(mode=bad)(),
    ):
        with pytest.raises(ValueError, match=ALL_MODES):
            make()


@pytest.mark.parametrize("bad", [1, b"edge", object()])
def test_mode_must_be_text(bad):
    with pytest.raises((TypeError, ValueError)):
        eploop.new_event_loop(mode=bad)


def test_unknown_mode_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("EPLOOP_MODE", "fast")
    with pytest.raises(ValueError, match=ALL_MODES):
        eploop.new_event_loop()


def test_unknown_option_is_refused():
    with pytest.raises(TypeError):
        eploop.new_event_loop(no_such_option=1)


def test_mode_is_read_only():
    loop = eploop.new_event_loop(mode="edge")
    with pytest.raises(AttributeError):
        loop.mode = "level"
    loop.close()


@pytest.mark.parametrize("mode", MODES)
def test_loop_factory_works_with_a_runner(mode):
    with asyncio.Runner(loop_factory=eploop.loop_factory(mode=mode)) as runner:
        loop = runner.run(current_loop())
        assert isinstance(loop, eploop.Loop)
        assert loop.mode == mode
    assert loop.is_closed()


def test_loop_factory_makes_a_new_loop_each_time():
    factory = eploop.loop_factory(mode="edge")
    first, second = factory(), factory()
    assert first is not second
    first.close()
    second.close()


@pytest.mark.parametrize("mode", [None, *MODES])
def test_run(mode):
    loop = eploop.run(current_loop(), mode=mode)
    assert isinstance(loop, eploop.Loop)
    assert loop.mode == (mode or "edge")
    assert loop.is_closed()


def test_run_gives_the_result_and_raises():
    async def main(result):
        return result

    async def fail():
        raise LookupError("x")

    assert eploop.run(main(5)) == 5
    with pytest.raises(LookupError, match="x"):
        eploop.run(fail())


@pytest.mark.parametrize("debug", [None, False, True])
def test_run_sets_debug(debug):
    async def main():
        return asyncio.get_running_loop().get_debug()

    assert eploop.run(main(), debug=debug) is bool(debug)


def test_run_refuses_what_is_no_coroutine():
    with pytest.raises((TypeError, ValueError), match="coroutine"):
        eploop.run(5)


def test_run_inside_a_running_loop_is_refused():
    async def main():
        coro = current_loop()
        with contextlib.closing(coro), pytest.raises(RuntimeError, match="running event loop"):
            eploop.run(coro)

    eploop.run(main())


def test_run_cancels_what_is_left():
    cancelled = []

    async def background():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main():
        asyncio.get_running_loop().keep = asyncio.create_task(background())
        await asyncio.sleep(0)

    eploop.run(main())
    assert cancelled == [True]


def test_run_leaves_no_current_loop():
    eploop.run(current_loop())
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


@has_policies
@pytest.mark.parametrize("mode", MODES)
def test_policy(mode, policy_restored):
    asyncio.set_event_loop_policy(eploop.EventLoopPolicy(mode=mode))
    loop = asyncio.new_event_loop()
    assert isinstance(loop, eploop.Loop)
    assert loop.mode == mode
    loop.close()
    assert asyncio.run(current_loop()).mode == mode


@has_policies
def test_policy_with_an_unknown_mode(policy_restored):
    with pytest.raises(ValueError, match=ALL_MODES):
        asyncio.set_event_loop_policy(eploop.EventLoopPolicy(mode="fast"))
        asyncio.new_event_loop()


@has_policies
def test_policy_is_an_asyncio_policy(policy_restored):
    assert isinstance(eploop.EventLoopPolicy(), asyncio.AbstractEventLoopPolicy)


@has_policies
def test_install(policy_restored):
    eploop.install()
    assert isinstance(asyncio.run(current_loop()), eploop.Loop)


def test_public_names():
    for name in ("Loop", "new_event_loop", "loop_factory", "run", "__version__"):
        assert hasattr(eploop, name)
        assert name in dir(eploop)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = eploop.no_such_name


def test_import_touches_no_policy():
    code = "import asyncio, asyncio.events, eploop; " \
           "print(getattr(asyncio.events, '_event_loop_policy', None))"
    assert child("-W", "error", "-c", code).strip() == "None"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import asyncio, sys\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    print(type(loop).__module__.split('.')[0], loop.mode, *sys.argv[1:], __name__)\n"
        "asyncio.run(main())\n"
    )
    return path


def test_command_line_runs_a_script(script):
    output = child("-m", "eploop", script, "--flag", "value")
    assert output.split() == ["eploop", "edge", "--flag", "value", "__main__"]


@pytest.mark.parametrize("mode", MODES)
def test_command_line_takes_a_mode(script, mode):
    assert child("-m", "eploop", "--mode", mode, script).split()[:2] == ["eploop", mode]
    output = child("-m", "eploop", script, env={"EPLOOP_MODE": mode})
    assert output.split()[:2] == ["eploop", mode]


def test_command_line_runs_a_module(script):
    output = child("-m", "eploop", "-m", "program", "arg",
                   env={"PYTHONPATH": os.pathsep.join([str(script.parent), *sys.path])})
    assert output.split() == ["eploop", "edge", "arg", "__main__"]


def test_command_line_passes_the_exit_status_on(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("raise SystemExit(7)\n")
    child("-m", "eploop", path, code=7)


def test_command_line_refuses_an_unknown_mode(script):
    child("-m", "eploop", "--mode", "fast", script, code=2)

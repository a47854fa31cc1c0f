"""`python -m eploop` runs a program as `python` does, only on another loop."""
import importlib.util
import py_compile
import subprocess
import sys
import textwrap
import zipfile

import pytest
from harness.servers import Launch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("eploop") is None, reason="eploop is not installed"
)

PROBE = """\
import sys, __main__
print(sys.argv, sys.path[0], __name__, __file__, __package__)
print(type(__loader__).__name__, getattr(__spec__, "name", None))
print(sys.modules["__main__"] is __main__)
print(sorted(name for name in vars(__main__) if name.startswith("__")))
"""
ASK = """\
import asyncio, sys
def tell(loop):
    import eploop
    print("eploop" if type(loop) is eploop.Loop else type(loop).__name__,
          getattr(loop, "mode", None), flush=True)
    loop.close()
async def main():
    import eploop
    loop = asyncio.get_running_loop()
    print("eploop" if type(loop) is eploop.Loop else type(loop).__name__,
          getattr(loop, "mode", None), flush=True)
"""


def python(*arguments, cwd, stdin="", **environment):
    """Run this Python with the same eploop as here, and give what it did."""
    base = Launch("uvicorn", "module", "edge").environment()
    base.pop("PYTHONWARNINGS")
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=base | environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=15,
    )


def eploop(*arguments, **options):
    return python("-m", "eploop", *arguments, **options)


def lines_of(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path):
    """A working folder with the probe in every form that Python can run."""
    scripts = tmp_path / "scripts"
    package = tmp_path / "package"
    for path in (scripts, package):
        path.mkdir()
    for path in (scripts / "probe.py", tmp_path / "module.py", package / "__main__.py"):
        path.write_text(PROBE)
    (package / "__init__.py").touch()
    py_compile.compile(scripts / "probe.py", tmp_path / "compiled.pyc")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", PROBE)
    (tmp_path / "link.py").symlink_to(scripts / "probe.py")
    return tmp_path


@pytest.fixture
def program(tmp_path):
    """Write a program that can ask which loop it got; give its path."""

    def write(body):
        path = tmp_path / "program.py"
        path.write_text(ASK + textwrap.dedent(body))
        return path

    return write


@pytest.mark.parametrize(
    "arguments",
    [
        ["scripts/probe.py"],
        ["scripts/probe.py", "--mode", "x", "--", "-m", "--stats"],
        ["link.py", "a"],
        ["compiled.pyc", "a"],
        ["package", "a"],
        ["archive.zip", "a"],
        ["-m", "module", "--mode", "x"],
        ["-mmodule", "a"],
        ["-m", "package", "-h"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("flag", [[], ["-P"]], ids=["", "safe-path"])
def test_same_as_python(folder, arguments, flag):
    wanted = python(*flag, *arguments, cwd=folder)
    got = python(*flag, "-m", "eploop", *arguments, cwd=folder)
    assert (got.returncode, got.stdout) == (wanted.returncode, wanted.stdout), got.stderr


def test_standard_input(tmp_path):
    text = "import sys; print(__name__, sys.argv, repr(sys.path[0]))"
    wanted = python("-", "a", "--stats", cwd=tmp_path, stdin=text)
    assert lines_of(eploop("-", "a", "--stats", cwd=tmp_path, stdin=text)) == lines_of(wanted)


@pytest.mark.parametrize(
    "statement",
    [
        "sys.exit(3)",
        "sys.exit('a text')",
        "sys.exit()",
        "1 / 0",
        "raise KeyboardInterrupt",
        "os._exit(5)",
        "import asyncio; asyncio.run(asyncio.sleep(0)); sys.exit(4)",
    ],
)
@pytest.mark.parametrize("how", ["script", "module"])
def test_exit_codes(tmp_path, statement, how):
    (tmp_path / "ends.py").write_text(f"import os, sys\n{statement}\n")
    arguments = ["-m", "ends"] if how == "module" else ["ends.py"]
    wanted = python(*arguments, cwd=tmp_path)
    got = eploop(*arguments, cwd=tmp_path)
    assert got.returncode == wanted.returncode
    assert got.stderr.splitlines()[-1:] == wanted.stderr.splitlines()[-1:]


@pytest.mark.parametrize(
    "statement",
    [
        "asyncio.run(main())",
        "tell(asyncio.new_event_loop())",
        "tell(asyncio.SelectorEventLoop())",
        "tell(asyncio.SelectorEventLoop(None))",
        "tell(getattr(asyncio, 'EventLoop', asyncio.SelectorEventLoop)())",
        "from asyncio import SelectorEventLoop; tell(SelectorEventLoop())",
        "from asyncio.unix_events import _UnixSelectorEventLoop as L; tell(L(selector=None))",
        "r = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop); r.run(main()); r.close()",
        "import uvloop; uvloop.run(main())",
        "import uvloop; tell(uvloop.new_event_loop())",
        "import uvloop; tell(uvloop.Loop())",
        "from uvloop import Loop, new_event_loop; tell(new_event_loop())",
        "import uvloop.loop; tell(uvloop.loop.Loop())",
        "import threading; t = threading.Thread(target=asyncio.run, args=[main()]); t.start()",
    ],
)
def test_every_way_to_a_loop(program, tmp_path, statement):
    got = eploop("--mode", "oneshot", program(statement), cwd=tmp_path)
    assert lines_of(got) == ["eploop oneshot"], got.stderr
    assert got.stderr == ""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="policies are deprecated")
@pytest.mark.parametrize(
    "statement",
    [
        "import uvloop; uvloop.install(); asyncio.run(main())",
        "import uvloop; asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())"
        "; asyncio.run(main())",
        "asyncio.set_event_loop_policy(None); asyncio.run(main())",
        "asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()); asyncio.run(main())",
    ],
)
def test_policies(program, tmp_path, statement):
    got = eploop("--mode", "oneshot", program(statement), cwd=tmp_path)
    assert lines_of(got) == ["eploop oneshot"], got.stderr


def test_stock_loop_on_demand(program, tmp_path):
    """Who subclasses the stock loop, or brings a selector, knows what they want."""
    path = program("""
        import selectors
        stock = asyncio.SelectorEventLoop
        class Mine(stock):
            def __init__(self, extra, selector=None):
                super().__init__(selector)
                self.extra = extra
        loop = Mine(7)
        assert isinstance(loop, stock) and loop.extra == 7
        tell(loop)
        loop = stock(selectors.SelectSelector())
        assert type(loop) is stock
        tell(loop)
        loop = stock(selector=selectors.PollSelector())
        loop.run_until_complete(asyncio.sleep(0.01))
        tell(loop)
        try:
            stock(1, 2, 3)
        except TypeError as exc:
            print(exc)
    """)
    mine, *others, error = lines_of(eploop(path, cwd=tmp_path))
    assert mine == "Mine None"
    assert others == ["_UnixSelectorEventLoop None"] * 2
    assert "argument" in error


def test_import_alone_changes_nothing(program, tmp_path):
    path = program("""
        import eploop, eploop.launch
        assert "uvloop" not in sys.modules
        asyncio.run(main())
        tell(asyncio.SelectorEventLoop())
    """)
    assert lines_of(python(path, cwd=tmp_path)) == ["_UnixSelectorEventLoop None"] * 2


def test_stand_in_for_uvloop(program, tmp_path):
    path = program("""
        import importlib.util
        import uvloop
        assert importlib.util.find_spec("uvloop") is not None
        assert int(uvloop.__version__.split(".")[1]) >= 17
        assert set(uvloop.__all__) == {"new_event_loop", "run", "install", "EventLoopPolicy"}
        loop = uvloop.new_event_loop()
        assert isinstance(loop, uvloop.Loop)
        loop.close()
        try:
            uvloop.nonsense
        except AttributeError as exc:
            print(exc)
    """)
    (text,) = lines_of(eploop(path, cwd=tmp_path))
    assert "nonsense" in text and "uvloop" in text


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_of_multiprocessing(program, tmp_path, method):
    """Children, and children of children."""
    path = program("""
        import multiprocessing
        def child(method, depth):
            asyncio.run(main())
            tell(asyncio.SelectorEventLoop())
            if depth:
                start(method, depth - 1)
        def start(method, depth):
            context = multiprocessing.get_context(method)
            process = context.Process(target=child, args=(method, depth))
            process.start()
            process.join()
            assert process.exitcode == 0
        if __name__ == "__main__":
            start(sys.argv[1], 1)
    """)
    got = eploop("--mode", "level", path, method, cwd=tmp_path)
    assert lines_of(got) == ["eploop level"] * 4, got.stderr


def test_main_module_outlives_its_last_line(program, tmp_path):
    """A pool that is still at work then must pickle functions of `__main__`."""
    path = program("""
        import concurrent.futures, multiprocessing, threading, time
        def ask(i):
            asyncio.run(main())
            return i
        def later():
            time.sleep(0.3)
            context = multiprocessing.get_context("spawn")
            process = context.Process(target=ask, args=(1,))
            process.start()
            process.join()
        if __name__ == "__main__":
            threading.Thread(target=later).start()
    """)
    assert lines_of(eploop(path, cwd=tmp_path)) == ["eploop edge"]


def test_mode_from_the_environment(program, tmp_path):
    path = program("asyncio.run(main())")
    assert lines_of(eploop(path, cwd=tmp_path, EPLOOP_MODE="level")) == ["eploop level"]
    got = eploop("--mode=oneshot", path, cwd=tmp_path, EPLOOP_MODE="level")
    assert lines_of(got) == ["eploop oneshot"]


def test_statistics(program, tmp_path):
    path = program("""
        asyncio.run(asyncio.sleep(0.01))
        loop = asyncio.new_event_loop()
        loop.close()
        loop.close()
    """)
    got = eploop("--stats", "--mode", "level", path, cwd=tmp_path)
    assert lines_of(got) == []
    assert got.stderr.count("eploop statistics: mode level, process ") == 2
    turns = [line.split() for line in got.stderr.splitlines() if line.split()[0] == "turns"]
    assert len(turns) == 2
    assert int(turns[0][1]) >= 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name a script"),
        (["--stats"], "name a script"),
        (["-m"], "module name"),
        (["nothing.py"], "nothing.py': no such file (to run an installed module, write -m"),
        (["--mode", "fast", "x.py"], "'edge', 'oneshot' or 'level', not 'fast'"),
        (["--mode"], "--mode"),
        (["--nonsense", "x.py"], "--nonsense"),
    ],
)
def test_wrong_command_line(tmp_path, arguments, text):
    got = eploop(*arguments, cwd=tmp_path)
    assert got.returncode == 2
    assert text in got.stderr
    assert "usage: python -m eploop" in got.stderr
    assert "Traceback" not in got.stderr


def test_wrong_mode_in_the_environment(tmp_path):
    got = eploop("x.py", cwd=tmp_path, EPLOOP_MODE="fast")
    assert got.returncode == 2
    assert "EPLOOP_MODE" in got.stderr


def test_missing_module(tmp_path):
    got = eploop("-m", "no_such_module_here", cwd=tmp_path)
    wanted = python("-m", "no_such_module_here", cwd=tmp_path)
    assert (got.returncode, got.stderr) == (wanted.returncode, wanted.stderr)


def test_version_and_help(tmp_path):
    (line,) = lines_of(eploop("--version", cwd=tmp_path))
    assert line.startswith("eploop ") and line[7].isdigit()
    assert "-m module" in eploop("-h", cwd=tmp_path).stdout


def test_demo_keeps_the_stock_loop(tmp_path):
    """The demo may compare, so its command line is handed on and nothing is installed."""
    got = eploop("demo", "--help", cwd=tmp_path)
    assert got.returncode == 0, got.stderr
    assert "usage" in got.stdout.lower()

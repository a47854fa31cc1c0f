"""Real servers as child processes: every way to put one on eploop, and its clean end."""
import contextlib
import importlib.util
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
APPS = HERE / "apps"
CERT = HERE / "certs" / "localhost.pem"
KEY = HERE / "certs" / "localhost.key"

MODES = ("edge", "oneshot", "level")
WEB_SERVERS = ("uvicorn", "aiohttp", "hypercorn")
SERVERS = (*WEB_SERVERS, "websockets")
HAS_POLICIES = sys.version_info < (3, 16)

# How the server comes by its loop.
# stock: asyncio's own, for comparison. factory, policy: the program asks for eploop (on_eploop.py).
# option: the server's own loop option. module: `python -m eploop`, nothing else changed. uvloop,
# asyncio: the same, with a server that is told to use that loop.
WAYS = {
    "uvicorn": ("factory", "policy", "option", "module", "asyncio", "uvloop"),
    "aiohttp": ("factory", "policy", "module"),
    "hypercorn": ("factory", "policy", "module", "uvloop"),
    "websockets": ("factory", "policy", "module"),
}
# With these each server runs through all tests; with the others the loop is checked.
FULL_WAYS = ("stock", "factory", "option", "module")
FULL_TLS_WAYS = ("stock", "module")

# Exit codes other than 0, as on stock asyncio, which the stock runs confirm.
EXIT_CODES = {("uvicorn", signal.SIGTERM): -signal.SIGTERM}

PATIENCE_S = 15.0
ESTABLISHED, CLOSE_WAIT, LISTEN = "01", "08", "0A"      # linux/tcp_states.h
# Nothing of this may be in the output of a server that worked and ended well.
TROUBLE = ("Traceback", "ResourceWarning", "RuntimeWarning", "was never", "Exception ignored")


@dataclass(frozen=True)
class Launch:
    """One server, one way to start it, one loop: `asyncio` or a mode of eploop."""

    server: str
    way: str
    loop: str
    tls: bool = False

    def __str__(self):
        return f"{self.server}-{self.way}-{self.loop}-{'tls' if self.tls else 'plain'}"

    def missing(self):
        """The package that this launch needs and does not find, or None."""
        needed = (self.server,) if self.way == "stock" else (self.server, "eploop")
        return next((name for name in needed if importlib.util.find_spec(name) is None), None)

    def command(self, port):
        """The command line; it runs in the folder of the applications."""
        cert, key = (str(CERT), str(KEY)) if self.tls else (None, None)
        if self.way in ("factory", "policy"):
            program = ["on_eploop.py", self.way, self.server]
        elif self.server in ("aiohttp", "websockets"):
            program = [f"{self.server}_app.py"]
        else:
            program = ["-m", self.server, "asgi_app:app"]
        options = {"--port": str(port), "--cert": cert, "--key": key}
        if program[0] == "-m" and self.server == "uvicorn":
            options = {"--port": str(port), "--ssl-certfile": cert, "--ssl-keyfile": key}
            options |= self._uvicorn_options()
        elif program[0] == "-m":
            options = {"--bind": f"127.0.0.1:{port}", "--certfile": cert, "--keyfile": key}
            options |= {"--worker-class": "uvloop"} if self.way == "uvloop" else {}
            options["--keep-alive"] = "1"       # it does not see sooner that a client is gone
        arguments = [part for pair in options.items() if pair[1] for part in pair]
        launcher = []
        if self.way in ("module", "asyncio", "uvloop"):
            launcher = ["-m", "eploop", "--mode", self.loop]
        return [sys.executable, *launcher, *program, *arguments]

    def _uvicorn_options(self):
        if self.way == "option":
            # Also the other HTTP and WebSocket implementations.
            return {"--loop": "eploop:new_event_loop", "--http": "h11", "--ws": "wsproto"}
        loop = {"stock": "asyncio", "module": "auto"}.get(self.way, self.way)
        return {"--loop": loop}

    def environment(self):
        """The child's environment: the same eploop as here, whatever the folder."""
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        environment["PYTHONWARNINGS"] = "always::ResourceWarning"
        environment.pop("EPLOOP_MODE", None)
        if self.way in ("factory", "policy", "option"):
            environment["EPLOOP_MODE"] = self.loop
        spec = importlib.util.find_spec("eploop")
        if spec is not None and spec.origin:
            paths = [str(Path(spec.origin).parent.parent), environment.get("PYTHONPATH")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return environment


def launches(servers, loops):
    """Every launch that runs through all tests.

    Args:
        servers: Names from SERVERS.
        loops: `asyncio` and modes.
    """
    return [
        Launch(server, way, loop, tls)
        for server in servers
        for loop in loops
        for way in ways(server, loop)
        for tls in (False, True)
        if way in (FULL_TLS_WAYS if tls else FULL_WAYS)
    ]


def ways(server, loop):
    """The ways to put this server on this loop."""
    if loop == "asyncio":
        return ("stock",)
    return [way for way in WAYS[server] if way != "policy" or HAS_POLICIES]


class Server:
    """A running server; a context manager that ends it and looks at how it ended."""

    def __init__(self, launch):
        self.launch = launch
        self.port = unused_port()
        self.address = ("127.0.0.1", self.port)
        self._ended = False
        with tempfile.NamedTemporaryFile(prefix="eploop-", delete=False) as file:
            self._output = Path(file.name)
            self._process = subprocess.Popen(
                launch.command(self.port),
                cwd=APPS,
                env=launch.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_listening()
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        if exc is None:
            self.stop()
        else:
            self.kill()

    @property
    def url(self):
        return f"{'https' if self.launch.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def websocket_url(self):
        return f"{'wss' if self.launch.tls else 'ws'}://127.0.0.1:{self.port}/ws"

    @property
    def output(self):
        """What the server has written until now."""
        return self._output.read_text(errors="replace")

    def send_signal(self, number):
        self._process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        """Ask the server to end, and check how it did; nothing if that was checked already."""
        if not self._ended:
            # The clients are gone, so the server must let its ends go. (And a WebSocket that is
            # still closing then makes some versions of uvicorn fail, on any loop.)
            self._wait_for(lambda: not open_ends(self.port), "still has connections")
            self.send_signal(number)
            self.check_end(number)

    def check_end(self, number):
        """Wait for the end that this signal brings; check the exit code and what was written."""
        self._ended = True
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            output = self.output
            self.kill()
            raise AssertionError(f"{self.launch} does not end on {number!r}:\n{output}") from None
        output = self.output
        self.kill()
        wanted = EXIT_CODES.get((self.launch.server, number), 0)
        assert code == wanted, f"{self.launch}: exit code {code}, not {wanted}:\n{output}"
        trouble = [word for word in TROUBLE if word in output]
        assert not trouble, f"{self.launch}: {', '.join(trouble)} in:\n{output}"
        assert "application shut down" in output, f"{self.launch}: no clean end:\n{output}"

    def kill(self):
        """End all processes of the server at once, and remove what it wrote."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.unlink(missing_ok=True)

    def _wait_until_listening(self):
        def listens():
            code = self._process.poll()
            assert code is None, f"{self.launch} ended with {code}:\n{self.output}"
            return is_listening(self.port)

        self._wait_for(listens, "does not listen")

    def _wait_for(self, condition, complaint):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                output = self.output
                self.kill()
                raise AssertionError(f"{self.launch} {complaint}:\n{output}")
            time.sleep(0.01)


def unused_port():
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def is_listening(port):
    """Whether somebody listens on this port, seen without a connection."""
    return LISTEN in tcp_states(port)


def open_ends(port):
    """How many connections at this port their owner has not closed yet."""
    return sum(state in (ESTABLISHED, CLOSE_WAIT) for state in tcp_states(port))


def tcp_states(port):
    """The states of all sockets bound to this port: proc(5), net/tcp."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[3] for row in rows if row[1].endswith(f":{port:04X}")]


def client_context():
    """A TLS client context that trusts the servers' certificate and nothing else."""
    return ssl.create_default_context(cafile=str(CERT))

"""The openssl command as a far end."""
import re
import shutil
import subprocess

import pytest

from support.net import LOOPBACK
from support.protocols import Recorder
from support.tls import CERTS, client_context

OPENSSL = shutil.which("openssl")
STDBUF = shutil.which("stdbuf")     # so that it says at once what it has done
SECONDS = 15
needs_openssl = pytest.mark.skipif(
    not (OPENSSL and STDBUF), reason="needs the commands openssl and stdbuf")


class Command:
    """A running openssl; its methods block, so they are called in a thread."""

    def __init__(self, loop, *words):
        self.loop = loop
        self.process = subprocess.Popen(
            [STDBUF, "-oL", OPENSSL, *map(str, words)], cwd=CERTS,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()

    async def _later(self, function, *args):
        return await self.loop.run_in_executor(None, function, *args)

    async def say(self, data):
        def write():
            self.process.stdin.write(data)
            self.process.stdin.flush()
        await self._later(write)

    async def hear_until(self, wanted):
        """What it prints, until `wanted` was in it."""
        def read():
            heard = []
            while not heard or wanted not in heard[-1]:
                heard.append(self.process.stdout.readline())
                assert heard[-1], f"it ended after {heard[-20:]!r}"
            return b"".join(heard)
        return await self._later(read)

    async def echo(self, data):
        """Say `data`, and hear it, what it said of the connection before that left out."""
        saying = self.loop.create_task(self.say(data))
        heard = await self.hear_until(data.splitlines()[-1])
        await saying
        assert heard.endswith(data)

    async def finish(self):
        """Close its input and wait; everything else it prints."""
        out, _ = await self._later(self.process.communicate, None, SECONDS)
        return out


def s_client(loop, port, *options):
    return Command(loop, "s_client", "-connect", f"{LOOPBACK}:{port}", "-CAfile", "ca.pem",
                   "-verify_return_error", "-servername", "localhost", *options)


class Server:
    """`openssl s_server` on a port of its own."""

    def __init__(self, loop, *options):
        self.command = Command(loop, "s_server", "-accept", f"{LOOPBACK}:0", "-cert", "server.pem",
                               "-key", "server.key", *options)

    async def __aenter__(self):
        heard = await self.command.hear_until(b"ACCEPT")
        self.port = int(re.search(rb"ACCEPT [\d.]+:(\d+)", heard)[1])
        return self

    async def __aexit__(self, *exc_info):
        self.command.__exit__()

    async def connect(self, loop, context=None, factory=Recorder):
        return await loop.create_connection(
            factory, LOOPBACK, self.port, ssl=context or client_context(),
            server_hostname="localhost")

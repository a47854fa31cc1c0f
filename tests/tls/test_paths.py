"""Which way TLS takes to OpenSSL, and who decides."""
import ssl
import subprocess
import sys

import pytest
from support.loops import EPLOOP_MISSING

pytestmark = pytest.mark.skipif(bool(EPLOOP_MISSING), reason=str(EPLOOP_MISSING))

WITHOUT_SSL = """
import sys
sys.modules["_ssl"] = None
import asyncio, eploop

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close()
    server.close()
    try:
        await asyncio.open_connection("127.0.0.1", 1, ssl=True)
    except (RuntimeError, OSError) as exc:
        print(type(exc).__name__)

eploop.run(main())
"""


def test_openssl_is_called_directly_where_it_can_be():
    import _ssl

    from eploop.tls.libssl import why_not_direct
    if not ssl.OPENSSL_VERSION.startswith("OpenSSL ") or not getattr(_ssl, "__file__", None):
        pytest.skip("an ssl module of another build")
    assert why_not_direct() is None


@pytest.mark.parametrize("value", ["", "direct", "memorybio"])
def test_environment_may_choose(monkeypatch, value):
    import eploop
    monkeypatch.setenv("EPLOOP_TLS", value)
    eploop.new_event_loop().close()


def test_wrong_choice_is_refused(monkeypatch):
    import eploop
    monkeypatch.setenv("EPLOOP_TLS", "rustls")
    with pytest.raises(ValueError, match=r"EPLOOP_TLS must be .*, not 'rustls'"):
        eploop.new_event_loop()


def test_python_without_ssl_has_all_but_tls():
    done = subprocess.run([sys.executable, "-c", WITHOUT_SSL], capture_output=True, text=True,
                          timeout=20)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("RuntimeError", "ConnectionRefusedError")

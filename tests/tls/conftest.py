"""The TLS tests run on both paths to OpenSSL: direct calls, and Python's ssl module."""
import pytest
from support.net import STREAM_KINDS

PATHS = ("direct", "memorybio")


def pytest_generate_tests(metafunc):
    if "loop_spec" in metafunc.fixturenames:
        metafunc.parametrize("tls_path", PATHS, indirect=True)


@pytest.fixture(params=STREAM_KINDS)
def kind(request):
    """Kind of stream below TLS."""
    return request.param


@pytest.fixture(autouse=True)
def tls_path(request, monkeypatch):
    """How eploop is to do TLS; read when the loop is made."""
    path = getattr(request, "param", PATHS[0])
    monkeypatch.setenv("EPLOOP_TLS", path)
    return path


def pytest_collection_modifyitems(config, items):
    """asyncio has one path only; the second one of eploop is the same in all modes."""
    kept, dropped = [], []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        second = params.get("tls_path", PATHS[0]) != PATHS[0]
        wanted = not second or params["loop_spec"].mode == "edge" \
            or (config.option.all_tls_paths and not params["loop_spec"].is_asyncio)
        (kept if wanted else dropped).append(item)
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)

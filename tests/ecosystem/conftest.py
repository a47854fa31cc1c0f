"""One child process for each launch, shared by all tests that take `server`."""
import pytest
from harness.params import marked, wanted_loops
from harness.servers import SERVERS, Server, launches


def pytest_generate_tests(metafunc):
    if "server" in metafunc.fixturenames:
        servers = getattr(metafunc.module, "SERVERS", SERVERS)
        params = marked(launches(servers, wanted_loops(metafunc.config)))
        metafunc.parametrize("server", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request):
    with Server(request.param) as running:
        yield running

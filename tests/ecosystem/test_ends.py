"""Every way to put a server on eploop; signals, graceful shutdown and exit codes."""
import signal
import time

import pytest
from harness.clients import check_loop, fetch, http_client
from harness.params import marked, wanted_loops
from harness.servers import FULL_WAYS, SERVERS, WEB_SERVERS, Launch, Server, ways

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def pytest_generate_tests(metafunc):
    loops = wanted_loops(metafunc.config)
    if "other_way" in metafunc.fixturenames:
        found = [
            Launch(server, way, loop)
            for server in SERVERS
            for loop in loops
            for way in ways(server, loop)
            if way not in FULL_WAYS
        ]
        metafunc.parametrize("other_way", marked(found))
    if "web_launch" in metafunc.fixturenames:
        found = [
            Launch(server, "stock" if loop == "asyncio" else "module", loop)
            for server in WEB_SERVERS
            for loop in loops
        ]
        metafunc.parametrize("web_launch", marked(found))


def test_other_way(other_way):
    """The ways that do not run through all tests at least get the wanted loop and end well."""
    with Server(other_way) as server:
        check_loop(server)
        if other_way.server in WEB_SERVERS:
            with http_client(server) as client:
                assert fetch(client, "/echo", "POST", body=b"hello") == b"hello"


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_request_in_flight_is_finished(web_launch, number):
    with Server(web_launch) as server, http_client(server) as client:
        check_loop(server)
        client.request("GET", "/delay?ms=200")
        time.sleep(0.05)        # for the request to arrive
        server.send_signal(number)
        response = client.getresponse()
        assert (response.status, response.read()) == (200, b"late")
        client.close()
        server.check_end(number)

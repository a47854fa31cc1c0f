"""What the loop answers itself is what the library would have said."""
import socket

import pytest
from support.loops import without_debug

pytestmark = without_debug("a function of its arguments")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "127.1", ""])
@pytest.mark.parametrize("port", [0, 80, 65535, 65536, -1, None, "80"])
@pytest.mark.parametrize("options", [
    {"type": socket.SOCK_STREAM},
    {"type": socket.SOCK_DGRAM},
    {"type": socket.SOCK_STREAM, "family": socket.AF_INET},
    {"type": socket.SOCK_STREAM, "family": socket.AF_INET6},
    {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP},
    {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_UDP},
    {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE},
    {"type": socket.SOCK_STREAM, "flags": socket.AI_CANONNAME},
    {"type": socket.SOCK_RAW},
    {},
], ids=str)
async def test_same_answer(loop, host, port, options):
    try:
        expected = socket.getaddrinfo(host, port, **options)
    except Exception as exc:
        with pytest.raises(type(exc)):
            await loop.getaddrinfo(host, port, **options)
        return
    answer = await loop.getaddrinfo(host, port, **options)
    assert answer == expected
    for ours, theirs in zip(answer, expected, strict=True):
        assert [type(item) for item in ours] == [type(item) for item in theirs]

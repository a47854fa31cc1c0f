"""Fixtures of the behaviour tests."""
import pytest
from support.net import STREAM_KINDS


@pytest.fixture(params=STREAM_KINDS)
def kind(request):
    """Kind of stream: what holds for TCP holds for Unix sockets too."""
    return request.param

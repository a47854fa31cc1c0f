"""A short run of leaks.py; `python tests/tls/leaks.py` is the long one."""
import leaks
import pytest
from support.loops import without_debug


@without_debug("hundreds of connections")
@pytest.mark.parametrize("way", leaks.WAYS)
def test_connections_leave_nothing(loop_factory, way):
    leaks.run_check(loop_factory, way, 200)

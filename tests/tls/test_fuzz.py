"""A short run of the fuzz; `python tests/tls/fuzz.py --megabytes 1000` is the long one."""
import fuzz
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.loops import differs_from_asyncio, without_debug


@differs_from_asyncio("a buffered protocol's bytearray gets zeros, and later changes are sent")
@without_debug("megabytes")
@settings(max_examples=15, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])    # a function, it is
@given(seed=st.integers(min_value=0, max_value=2**63))
def test_nothing_is_lost_repeated_or_moved(loop_factory, seed):
    fuzz.run_episode(loop_factory, seed, megabytes=1)

"""How far ahead a reader is read: requests double while it goes on, depth only while it has to wait."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.pacing.read_ahead import DEFAULT_LIMITS, ReadAhead, ReadAheadLimits, began, moved_on

CHUNK = 1 << 20


def after(waits: list[bool], limits: ReadAheadLimits = DEFAULT_LIMITS) -> list[ReadAhead]:
    paces = [began(limits)]
    for waited in waits:
        paces.append(moved_on(paces[-1], limits, chunk_bytes=CHUNK, waited=waited))
    return paces


def test_a_reader_of_whom_nothing_is_known_gets_its_chunk_and_the_next() -> None:
    assert began(DEFAULT_LIMITS) == ReadAhead(request_bytes=0, ahead_bytes=1)


def test_requests_double_while_a_reader_goes_on_in_order() -> None:
    paces = after([False] * 6)
    assert [pace.request_bytes // CHUNK for pace in paces] == [0, 2, 4, 8, 8, 8, 8]
    assert [pace.ahead_bytes for pace in paces[1:]] == [pace.request_bytes // 2 for pace in paces[1:]]


def test_a_reader_that_never_waits_is_read_no_further_ahead() -> None:
    assert after([False] * 100)[-1].ahead_bytes == DEFAULT_LIMITS.request_bytes // 2


def test_a_reader_that_waits_is_read_further_ahead_up_to_the_limit() -> None:
    depths = [pace.ahead_bytes for pace in after([True] * 8)]
    assert depths == sorted(depths)
    assert depths[-1] == DEFAULT_LIMITS.ahead_bytes
    assert len({*depths}) > 4, "step by step"


def test_without_depth_nothing_is_ever_read_ahead() -> None:
    assert {
        pace.ahead_bytes for pace in after([True, False, True], ReadAheadLimits(request_bytes=0, ahead_bytes=0))
    } == {0}


@given(
    waits=st.lists(st.booleans(), max_size=30),
    request_bytes=st.integers(0, 64 << 20),
    ahead_bytes=st.integers(0, 64 << 20),
)
def test_the_limits_hold_whatever_a_reader_does(waits: list[bool], request_bytes: int, ahead_bytes: int) -> None:
    for pace in after(waits, ReadAheadLimits(request_bytes=request_bytes, ahead_bytes=ahead_bytes)):
        assert 0 <= pace.request_bytes <= request_bytes
        assert 0 <= pace.ahead_bytes <= ahead_bytes

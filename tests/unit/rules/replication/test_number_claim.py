"""Who may take a broker's number: only who replaces a process that is known to be gone."""

from uuid import UUID, uuid4

import pytest

from tiered.rules.replication.number_claim import (
    MOST_INCARNATIONS,
    Claim,
    Holder,
    HolderVerdict,
    HolderWatchState,
    with_attempt,
)

OURS, THEIRS = UUID(int=1), UUID(int=2)
SESSION_MS, INTERVAL_MS = 2_000.0, 400.0


def held(by: UUID | None = THEIRS, *, epoch: int = 7, fenced: bool = False, beat: int = 100) -> Holder:
    return Holder(broker_epoch=epoch, incarnation_id=by, fenced=fenced, heartbeat_at_ms=beat)


CLAIM = Claim(incarnations=frozenset({OURS}), marker_epoch=5)


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (held(), False),
        (held(None), False),
        (held(fenced=True), True),
        (held(OURS), True),
        (held(None, epoch=5), True),
        (held(THEIRS, epoch=5), True),
    ],
)
def test_who_left_or_ran_on_this_folder_is_replaced_at_once_and_nobody_else(holder: Holder, expected: bool) -> None:
    assert CLAIM.may_replace(holder) is expected


def test_a_silent_holder_is_replaced_only_as_it_was_seen() -> None:
    claim = Claim(incarnations=frozenset({OURS}), silent=held())
    assert claim.may_replace(held())
    assert not claim.may_replace(held(beat=101)), "it lives after all"
    assert not claim.may_replace(held(epoch=8)), "somebody else was first"


def test_a_folder_without_a_marker_owns_no_registration_of_a_version_that_kept_no_list() -> None:
    assert not Claim(incarnations=frozenset({OURS})).may_replace(held(None))


def watch() -> HolderWatchState:
    return HolderWatchState(session_timeout_ms=SESSION_MS, interval_ms=INTERVAL_MS)


def test_a_heartbeat_that_stands_still_for_a_session_is_silence() -> None:
    state = watch()
    seen = [state.look(held(), INTERVAL_MS * step) for step in range(6)]
    assert seen == [HolderVerdict.GOES_ON] * 5 + [HolderVerdict.HOLDER_IS_SILENT]


def test_a_holder_that_moves_after_two_sessions_stays_whatever_its_clock_says() -> None:
    for direction in (1, -1):
        state = watch()
        seen = [state.look(held(beat=direction * step), INTERVAL_MS * step) for step in range(11)]
        assert seen == [HolderVerdict.GOES_ON] * 10 + [HolderVerdict.HOLDER_STAYS]


@pytest.mark.parametrize("last_beat", [1, 4, 6, 9])
def test_a_holder_that_dies_meanwhile_is_silent_a_session_later(last_beat: int) -> None:
    state = watch()
    seen = [state.look(held(beat=min(step, last_beat)), INTERVAL_MS * step) for step in range(last_beat + 6)]
    assert seen == [HolderVerdict.GOES_ON] * (last_beat + 5) + [HolderVerdict.HOLDER_IS_SILENT]


def test_a_pause_of_the_one_that_waits_is_not_held_against_the_holder() -> None:
    state = watch()
    assert state.look(held(), 0) is HolderVerdict.GOES_ON
    assert state.look(held(), 60_000) is HolderVerdict.GOES_ON
    assert state.look(held(beat=101), 60_400) is HolderVerdict.HOLDER_STAYS


def test_a_holder_that_beats_as_rarely_as_its_session_is_given_three_beats() -> None:
    state = HolderWatchState(session_timeout_ms=2_000, interval_ms=2_000)
    assert [state.look(held(), 2_000.0 * step) for step in range(4)][-2:] == [
        HolderVerdict.GOES_ON, HolderVerdict.HOLDER_IS_SILENT,
    ]  # fmt: skip


def test_a_new_holder_is_given_a_session_of_its_own() -> None:
    state = watch()
    for step in range(4):
        state.look(held(), INTERVAL_MS * step)
    seen = [state.look(held(epoch=8), INTERVAL_MS * step) for step in range(4, 10)]
    assert seen == [HolderVerdict.GOES_ON] * 5 + [HolderVerdict.HOLDER_IS_SILENT]


def test_a_folder_never_forgets_who_registered_last_however_many_tried_since() -> None:
    registered = uuid4()
    incarnations: tuple[UUID, ...] = (registered,)
    for _ in range(3 * MOST_INCARNATIONS):
        tried = uuid4()
        incarnations = with_attempt(incarnations, tried)
        assert (incarnations[0], incarnations[-1]) == (registered, tried)
        assert len(incarnations) <= MOST_INCARNATIONS
    assert with_attempt((), registered) == (registered,)

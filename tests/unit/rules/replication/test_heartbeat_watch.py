"""Who is silent: only whose heartbeat stood still through a whole session of looks."""

from tiered.ids import InSyncReplica
from tiered.rules.replication.heartbeat_watch import HeartbeatWatchState

TWO, THREE = InSyncReplica(2, 20), InSyncReplica(3, 30)


def watch() -> HeartbeatWatchState:
    return HeartbeatWatchState(session_timeout_ms=2_000, interval_ms=400)


def look(state: HeartbeatWatchState, now_ms: float, *beats: tuple[InSyncReplica, int]) -> tuple[InSyncReplica, ...]:
    state.look(beats, now_ms)
    return state.silent()


def test_a_heartbeat_that_stands_still_for_a_session_is_silence_and_one_that_moves_is_not() -> None:
    state = watch()
    for step in range(5):
        assert look(state, 400.0 * step, (TWO, 7), (THREE, step)) == ()
    assert look(state, 2_000, (TWO, 7), (THREE, 5)) == (TWO,)
    assert look(state, 2_400, (TWO, 8), (THREE, 6)) == ()


def test_a_heartbeat_is_late_after_half_a_session_and_never_after_a_look_that_was_not_possible() -> None:
    state = watch()
    late = []
    for step in range(4):
        look(state, 400.0 * step, (TWO, 7), (THREE, step))
        late.append(state.late())
    assert late == [frozenset(), frozenset(), frozenset(), frozenset({2})]
    state.missed()
    assert state.late() == frozenset()


def test_clocks_that_differ_or_go_back_do_not_matter() -> None:
    state = watch()
    for step in range(10):
        assert look(state, 400.0 * step, (TWO, 10**12 - step)) == ()


def test_a_pause_of_all_processes_is_held_against_nobody() -> None:
    state = watch()
    for step in range(5):
        look(state, 400.0 * step, (TWO, step), (THREE, 7))
    assert look(state, 60_000, (TWO, 4), (THREE, 7)) == (THREE,), "it was silent before the pause already"
    assert look(state, 60_400, (TWO, 4), (THREE, 8)) == ()
    assert look(state, 60_800, (TWO, 5), (THREE, 9)) == ()


def test_looks_that_take_long_find_a_dead_broker_all_the_same() -> None:
    state = watch()
    assert look(state, 0, (TWO, 7)) == ()
    assert look(state, 3_000, (TWO, 7)) == ()
    assert look(state, 6_000, (TWO, 7)) == (TWO,)


def test_after_a_look_that_was_not_possible_the_watch_begins_anew() -> None:
    state = watch()
    for step in range(5):
        look(state, 400.0 * step, (TWO, 7))
    state.missed()
    assert state.silent() == ()
    for step in range(5, 10):
        assert look(state, 400.0 * step, (TWO, 7)) == ()
    assert look(state, 4_000, (TWO, 7)) == (TWO,)


def test_after_a_look_that_was_not_possible_others_may_find_out_later_that_they_can_beat_again() -> None:
    state = HeartbeatWatchState(session_timeout_ms=2_000, interval_ms=400, recovery_ms=1_000)
    look(state, 0, (TWO, 7), (THREE, 7))
    state.missed()
    state.missed()
    for step in range(7):
        assert look(state, 400.0 * step, (TWO, 7), (THREE, 7 + step)) == ()
    assert look(state, 2_800, (TWO, 7), (THREE, 13)) == ()
    assert look(state, 3_000, (TWO, 7), (THREE, 13)) == (TWO,), "a session and the time to recover"
    for step in range(3):
        assert look(state, 3_400 + 400.0 * step, (TWO, 8 + step), (THREE, 13)) == ()
    assert look(state, 4_600, (TWO, 11), (THREE, 13)) == (THREE,), "who was heard of has a session, as ever"


def test_a_new_registration_is_watched_from_its_first_look_on() -> None:
    state = watch()
    for step in range(6):
        look(state, 400.0 * step, (TWO, 7))
    again = InSyncReplica(2, 21)
    assert look(state, 2_400, (again, 7)) == ()
    assert look(state, 2_800, (again, 7)) == ()


def test_a_broker_that_is_not_among_the_beats_is_not_silent() -> None:
    state = watch()
    for step in range(5):
        look(state, 400.0 * step, (TWO, 7))
    assert look(state, 2_000) == ()


def test_a_slow_rhythm_is_no_gap() -> None:
    state = HeartbeatWatchState(session_timeout_ms=2_000, interval_ms=2_000)
    look(state, 0, (TWO, 7))
    assert look(state, 2_000, (TWO, 7)) == (TWO,)

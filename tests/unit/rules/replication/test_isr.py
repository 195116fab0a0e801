"""Who is in sync, and how far everything is committed."""

from tiered.ids import InSyncReplica
from tiered.rules.replication import isr
from tiered.rules.replication.isr import Fetched

LEADER, SECOND, THIRD = InSyncReplica(1, 11), InSyncReplica(2, 12), InSyncReplica(3, 13)
ALL = (LEADER, SECOND, THIRD)


def watermark(
    *,
    previous: int = 0,
    own_end_offset: int = 100,
    committed: isr.Members = ALL,
    pending: isr.Members | None = None,
    min_isr: int = 2,
    fetched: dict[int, Fetched] | None = None,
) -> int:
    known = {2: Fetched(12, 90), 3: Fetched(13, 80)} if fetched is None else fetched
    return isr.high_watermark(
        previous=previous,
        own_end_offset=own_end_offset,
        leader=LEADER,
        committed=committed,
        pending=pending,
        min_isr=min_isr,
        fetched=known,
    )


def test_the_slowest_member_decides() -> None:
    assert watermark() == 80


def test_a_leader_alone_commits_what_it_has() -> None:
    assert watermark(committed=(LEADER,), min_isr=1, fetched={}) == 100


def test_it_never_goes_back() -> None:
    assert watermark(previous=85) == 85


def test_a_member_that_has_not_fetched_in_this_epoch_holds_it_back() -> None:
    assert watermark(previous=7, fetched={2: Fetched(12, 90)}) == 7


def test_a_fetch_of_another_registration_does_not_count() -> None:
    assert watermark(previous=7, fetched={2: Fetched(12, 90), 3: Fetched(99, 80)}) == 7


def test_it_stands_while_the_isr_is_too_small() -> None:
    assert watermark(previous=7, committed=(LEADER,), fetched={}) == 7


def test_a_leader_that_is_not_in_the_isr_commits_nothing() -> None:
    assert watermark(previous=7, committed=(InSyncReplica(1, 10), SECOND)) == 7


def test_who_may_be_joining_counts_already() -> None:
    joining = isr.joined((LEADER, SECOND), THIRD)
    assert watermark(committed=(LEADER, SECOND)) == 90
    assert watermark(committed=(LEADER, SECOND), pending=joining) == 80


def test_who_may_be_leaving_counts_still() -> None:
    assert watermark(pending=(LEADER, SECOND)) == 80


def test_a_follower_joins_with_all_that_is_committed_and_all_of_the_epochs_before() -> None:
    assert isr.may_join(Fetched(13, 80), high_watermark=80, epoch_start_offset=80)
    assert not isr.may_join(Fetched(13, 79), high_watermark=80, epoch_start_offset=10)
    assert not isr.may_join(Fetched(13, 79), high_watermark=10, epoch_start_offset=80)


def test_a_process_takes_the_place_of_the_one_before() -> None:
    assert isr.joined(ALL, InSyncReplica(2, 99)) == (LEADER, InSyncReplica(2, 99), THIRD)
    assert isr.joined((LEADER,), SECOND) == (LEADER, SECOND)


def test_the_isr_never_gets_smaller_than_its_minimum() -> None:
    assert isr.without(ALL, (SECOND, THIRD), 2) == (LEADER, THIRD)
    assert isr.without((LEADER, SECOND), (SECOND,), 2) == (LEADER, SECOND)
    assert isr.without(ALL, (SECOND, THIRD), 1) == (LEADER,)


def test_few_replicas_need_no_more_than_all_of_them() -> None:
    assert isr.effective_min_isr(2, 1) == 1
    assert isr.effective_min_isr(2, 3) == 2


def lagging(caught_up_ms: dict[int, float], fetched: dict[int, Fetched]) -> isr.Members:
    return isr.lagging(
        ALL,
        leader=LEADER,
        log_end_offset=100,
        fetched=fetched,
        caught_up_ms=caught_up_ms,
        now_ms=1000,
        max_lag_ms=300,
    )


def test_who_is_behind_for_too_long_lags_the_furthest_first() -> None:
    fetched = {2: Fetched(12, 90), 3: Fetched(13, 80)}
    assert lagging({2: 600.0, 3: 600.0}, fetched) == (THIRD, SECOND)
    assert lagging({2: 600.0, 3: 800.0}, fetched) == (SECOND,)


def test_who_has_everything_never_lags() -> None:
    assert lagging({2: 0.0, 3: 0.0}, {2: Fetched(12, 100), 3: Fetched(13, 100)}) == ()


def test_another_registration_that_has_everything_helps_nobody() -> None:
    assert lagging({2: 0.0, 3: 1000.0}, {2: Fetched(99, 100), 3: Fetched(13, 100)}) == (SECOND,)


def test_a_follower_of_a_busy_log_is_level_when_it_has_what_there_was_before() -> None:
    assert (
        isr.caught_up_at(offset=100, log_end_offset=100, previous_log_end_offset=50, previous_fetch_ms=1, now_ms=9) == 9
    )
    assert (
        isr.caught_up_at(offset=60, log_end_offset=100, previous_log_end_offset=50, previous_fetch_ms=1, now_ms=9) == 1
    )
    assert (
        isr.caught_up_at(offset=40, log_end_offset=100, previous_log_end_offset=50, previous_fetch_ms=1, now_ms=9)
        is None
    )

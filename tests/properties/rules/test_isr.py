"""What a high watermark and an ISR may never do, whatever followers fetch and whatever is open."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.ids import InSyncReplica
from tiered.rules.replication import isr
from tiered.rules.replication.isr import Fetched

LEADER = InSyncReplica(0, 100)
epochs = st.integers(100, 103)
members = st.lists(
    st.builds(InSyncReplica, st.integers(0, 4), epochs), max_size=5, unique_by=lambda each: each.broker_id
).map(tuple)
fetches = st.dictionaries(st.integers(1, 4), st.builds(Fetched, epochs, st.integers(0, 50)))


@given(
    committed=members,
    pending=st.none() | members,
    fetched=fetches,
    previous=st.integers(0, 50),
    end=st.integers(0, 50),
    min_isr=st.integers(1, 4),
)
def test_the_high_watermark_moves_only_to_what_every_possible_member_holds(
    committed: isr.Members,
    pending: isr.Members | None,
    fetched: dict[int, Fetched],
    previous: int,
    end: int,
    min_isr: int,
) -> None:
    after = isr.high_watermark(
        previous=previous,
        own_end_offset=end,
        leader=LEADER,
        committed=committed,
        pending=pending,
        min_isr=min_isr,
        fetched=fetched,
    )
    assert after >= previous
    if after == previous:
        return
    assert after <= end
    assert len(committed) >= min_isr
    assert LEADER in committed
    for member in {*committed, *(pending or ())} - {LEADER}:
        assert fetched[member.broker_id].broker_epoch == member.broker_epoch
        assert fetched[member.broker_id].offset >= after


@given(committed=members, leaving=members, min_isr=st.integers(1, 5))
def test_leaving_spares_the_minimum_and_everybody_else(
    committed: isr.Members, leaving: isr.Members, min_isr: int
) -> None:
    after = isr.without(committed, leaving, min_isr)
    assert len(after) >= min(min_isr, len(committed))
    assert set(committed) - set(leaving) <= set(after) <= set(committed)


@given(committed=members, member=st.builds(InSyncReplica, st.integers(0, 4), epochs))
def test_a_broker_is_in_the_isr_once(committed: isr.Members, member: InSyncReplica) -> None:
    after = isr.joined(committed, member)
    assert member in after
    assert len({each.broker_id for each in after}) == len(after)
    assert {each for each in committed if each.broker_id != member.broker_id} <= set(after)


@given(committed=members, pending=st.none() | members)
def test_the_maximal_isr_holds_both_ways_a_change_can_go(committed: isr.Members, pending: isr.Members | None) -> None:
    assert set(isr.maximal(committed, pending)) == {*committed, *(pending or ())}

"""Bugs to plant: each breaks one rule in the product's code, and names the functions that it puts in whose place.

Owns the list alone. The product's code stays as it is: `tests.simulation.mutants` plants a bug for as long as a run
lasts, and looks for a seed that shows it.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tests.simulation.plan import FORGETFUL, IN_TURNS, PLAIN, UNCERTAIN, Plan
from tiered.broker.control import registration
from tiered.broker.control.registration import Registration
from tiered.broker.groups import offset_memory
from tiered.broker.host.marker import Marker
from tiered.broker.partitions import acknowledgements
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.role import Role
from tiered.broker.replication import answer, catch_up, fetcher, isr_changes
from tiered.broker.tiering import partition_loader, tier_plan
from tiered.errors import TieredError
from tiered.meta import cluster, coordinator_slots, group_offsets, history, partitions, replica_sets, segments
from tiered.meta.tables import segment
from tiered.rules.replication import elections, isr
from tiered.rules.replication.replica_set import ReplicaSet
from tiered.rules.segments import tiering

Patches = list[tuple[Any, str, Any]]
"""What is put in whose place: owner, name, substitute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    breaks: str
    """The rule or invariant, and how."""
    patches: Callable[[], Patches]
    plan: Plan = PLAIN
    """Of the runs that are to show it."""


class _NeverRaised(Exception):
    """In the place of an error that a bug does not know."""


def _unknown_is_failure() -> Patches:
    return [(isr_changes, "MetadataOutcomeUnknown", _NeverRaised)]


def _blind_swap() -> Patches:
    plain = partitions.change_isrs

    def change(conn: Any, *, broker_id: int, broker_epoch: int, changes: Any) -> Any:
        now = [
            replace(each, expected_partition_epoch=partitions.load(conn, each.topic_id, each.partition).partition_epoch)
            for each in changes
        ]
        return plain(conn, broker_id=broker_id, broker_epoch=broker_epoch, changes=now)

    return [(partitions, "change_isrs", change)]


def _serves_what_went_back() -> Patches:
    def look(self: Any, conn: Any, server: str) -> Any:
        row = cluster.find(conn)
        assert row is not None
        began = history.Seen(cluster_id=row.cluster_id, start=1, server=server, change_number=row.change_number)
        return history.Look(began=began)

    return [(history.History, "look", look)]


def _settles_by_reading() -> Patches:
    """Reads the row, and takes the present state of an open change for its outcome."""
    plain = isr_changes.IsrChanges.round

    async def round_(self: Any) -> bool:
        unsettled = list(self._unsettled.items())
        for key, (partition, of) in unsettled:
            where = partition.topic_partition
            try:
                row = await self._context.database.read(
                    lambda conn, where=where: partitions.load(conn, where.topic_id, where.partition)
                )
            except TieredError:
                return False
            if partition.leadership is of and row.partition_epoch == of.pending_since_epoch:
                of.settle()
                partition.advance_high_watermark()
            self._unsettled.pop(key, None)
        return False if unsettled else await plain(self)  # What is due now is for the next round.

    return [(isr_changes.IsrChanges, "round", round_)]


def _fetch_epoch_unchecked() -> Patches:
    def is_fresh(self: Any, followed: Any, asked: Any) -> bool:
        partition = followed.partition
        return not followed.is_left and partition.role is Role.FOLLOWER and not partition.is_truncating

    # The leader epoch by itself is not missed: a fetch also names the epoch of the follower's last record.
    return [
        (Partition, "check_leader_epoch", lambda self, claimed: None),
        (fetcher.ReplicaFetcher, "_is_fresh", is_fresh),
        (answer, "divergence", lambda *args, **kwargs: None),
    ]


def _truncates_to_high_watermark() -> Patches:
    async def truncate(self: Any, partition: Any, found: Any) -> None:
        offset = min(partition.high_watermark, partition.log.log_end_offset)
        log_ = partition.log

        def cut() -> Any:
            log_.truncate_to(offset)
            return log_.producers_at_end()

        await self._in_thread(partition, cut)

    return [(catch_up.CatchUp, "truncate", truncate)]


def _elects_placeholders() -> Patches:
    def electable(self: ReplicaSet, standings: Any) -> tuple[int, ...]:
        found = {each.broker_id for each in self.isr if not standings[each.broker_id].fenced}
        return tuple(broker_id for broker_id in self.replicas if broker_id in found)

    def can_lead(replicas: ReplicaSet, standings: Any, broker_id: int) -> bool:
        return broker_id in electable(replicas, standings)

    def role_in(self: Any, row: Any, broker_epoch: int) -> Any:
        if row.leader == self.broker_id:
            return Role.LEADER
        return Role.FOLLOWER if row.leader != -1 else Role.NONE

    return [
        (ReplicaSet, "electable", electable),
        (elections, "_can_lead", can_lead),
        (Partition, "_role_in", role_in),
    ]


def _shrinks_below_min_isr() -> Patches:
    plain_after, plain_without = elections.after_failure, isr.without
    return [
        (elections, "after_failure", lambda before, standings, *, min_isr: plain_after(before, standings, min_isr=1)),
        (isr, "without", lambda committed, leaving, min_isr: plain_without(committed, leaving, 1)),
        (isr, "effective_min_isr", lambda min_insync_replicas, replica_count: 1),
        (Partition, "is_under_min_isr", False),
    ]


def _joins_without_broker_epoch() -> Patches:
    """Whoever joins or stays does so with its present registration, whichever process it was that had caught up."""
    plain = partitions.change_isrs

    def change(conn: Any, *, broker_id: int, broker_epoch: int, changes: Any) -> Any:
        standings = replica_sets.load_standings(conn)
        now = [
            replace(
                each, isr=tuple(member._replace(broker_epoch=standings[member.broker_id][0]) for member in each.isr)
            )
            for each in changes
        ]
        return plain(conn, broker_id=broker_id, broker_epoch=broker_epoch, changes=now)

    return [(partitions, "change_isrs", change)]


def _zombie_commits_offsets() -> Patches:
    """Whatever the slots' epochs are by now, the coordinator writes."""
    plain, numbers = group_offsets.write, count(1_000_000)

    def write(conn: Any, commits: Any, changed: Any, by: Any) -> Any:
        slots = {each.slot for each in commits} | {each.slot for each in changed}
        rows = coordinator_slots.lock(conn, slots)
        epochs = {slot: row.slot_epoch for slot, row in rows.items()}
        return plain(conn, commits, changed, replace(by, slot_epochs=epochs, commit_number=next(numbers)))

    return [(group_offsets, "lost", lambda row, slot, by: None), (group_offsets, "write", write)]


def _serves_uncommitted() -> Patches:
    def plan_read(self: Any, offset: int, *, committed_only: bool) -> Any:
        return self._plan(offset, self.log.log_end_offset)

    def read_hot(self: Any, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> Any:
        return self.log.read_committed(
            offset, max_bytes, end_offset=self.log.log_end_offset, min_one_batch=at_least_one
        )

    return [(Partition, "plan_read", plan_read), (Partition, "read_hot", read_hot)]


def _acknowledges_on_append() -> Patches:
    async def reached(self: Any, end_offset: int, leader_epoch: int, timeout_ms: float) -> bool:
        return True

    return [(acknowledgements.Acknowledgements, "reached", reached)]


def _begins_to_wait_without_looking() -> Patches:
    def begin(self: Any, end_offset: int, leader_epoch: int, wake: Callable[[], None]) -> Any:
        commit = acknowledgements.Commit(wake)
        heapq.heappush(self._waiting, (end_offset, next(self._order), commit))
        return commit

    return [(acknowledgements.Acknowledgements, "begin", begin)]


def _registers_everybody_as_clean() -> Patches:
    return [(Marker, "clean_epoch", lambda self, boot_id: self.broker_epoch)]


def _keeps_the_marker() -> Patches:
    def log_failed(self: Any) -> None:
        return None

    return [(Registration, "log_failed", log_failed)]


def _trusts_the_page_cache() -> Patches:
    def write_again(fs: Any, directory: str) -> None:
        return None

    return [(registration, "write_again", write_again), (partition_loader, "write_again", write_again)]


def _deletes_before_commit() -> Patches:
    def before(partition: Any, now_ms: int) -> int:
        return partition.log.active_base_offset  # type: ignore[no-any-return]

    return [(tier_plan, "local_delete_before", before)]


def _zombie_commits_segments() -> Patches:
    plain = segments.commit

    def commit(conn: Any, object_id: Any, *, leader_epoch: int, now_ms: int, size_bytes: int | None = None) -> Any:
        row = segments.load(conn, object_id)
        current = partitions.load(conn, row.topic_id, row.partition).leader_epoch
        conn.execute(segment.update().where(segment.c.object_id == object_id).values(leader_epoch=current))
        return plain(conn, object_id, leader_epoch=current, now_ms=now_ms, size_bytes=size_bytes)

    return [(segments, "commit", commit)]


def _uploads_uncommitted() -> Patches:
    """T1: what is above the high watermark goes to the store too."""

    plain = tiering.next_uploads

    def next_uploads(found: Any, **bounds: Any) -> Any:
        end_offset = found[-1].end_offset
        return plain(found, **{**bounds, "high_watermark": end_offset, "last_stable_offset": end_offset})

    return [(tier_plan, "next_uploads", next_uploads)]


MUTANTS = (
    Mutant(
        name="pending_isr_ignored",
        breaks="R3, rule 4: the high watermark counts the committed ISR and not the one that is being written",
        patches=lambda: [(isr, "maximal", lambda committed, pending: committed)],
    ),
    Mutant(
        name="unknown_is_failure",
        breaks="rule 7: a compare-and-swap whose outcome is unknown is taken for one that failed",
        patches=_unknown_is_failure,
    ),
    Mutant(
        name="settled_by_a_read",
        breaks="rule 7: an unknown outcome is settled by a read, which a late COMMIT overtakes",
        patches=_settles_by_reading,
    ),
    Mutant(
        name="blind_swap",
        breaks="rule 1: the compare-and-swap does not compare partition_epoch",
        patches=_blind_swap,
        plan=UNCERTAIN,
    ),
    Mutant(
        name="fetch_epoch_unchecked",
        breaks="R8: fetches and answers of another leader epoch count: nobody looks at the epochs that they name",
        patches=_fetch_epoch_unchecked,
    ),
    Mutant(
        name="joins_before_epoch_start",
        breaks="rule 5: a follower joins the ISR without the leader's log as it was at the election",
        patches=lambda: [
            (isr, "may_join", lambda fetched, *, high_watermark, epoch_start_offset: fetched.offset >= high_watermark)
        ],
    ),
    Mutant(
        name="joins_below_high_watermark",
        breaks="rule 5: a follower joins the ISR without what was committed in this epoch",
        patches=lambda: [
            (
                isr,
                "may_join",
                lambda fetched, *, high_watermark, epoch_start_offset: fetched.offset >= epoch_start_offset,
            )
        ],
    ),
    Mutant(
        name="truncates_to_high_watermark",
        breaks="rule 6: a follower cuts its log to its own high watermark",
        patches=_truncates_to_high_watermark,
    ),
    Mutant(
        name="divergence_unchecked",
        breaks="rule 6: the leader does not look whether a follower's log is a prefix of its own",
        patches=lambda: [(answer, "divergence", lambda *args, **kwargs: None)],
    ),
    Mutant(
        name="unclean_is_clean",
        breaks="rule 8, R7: a restart after a power loss is taken for a clean one",
        patches=_registers_everybody_as_clean,
    ),
    Mutant(
        name="elects_placeholders",
        breaks="rule 2: a member whose registration is not the recorded one is elected",
        patches=_elects_placeholders,
    ),
    Mutant(
        name="shrinks_below_min_isr",
        breaks="rule 3: the ISR shrinks to one replica where min.insync.replicas is 2",
        patches=_shrinks_below_min_isr,
    ),
    Mutant(
        name="broker_epoch_unchecked",
        breaks="rule 5: a member is recorded with its present registration, whichever of its processes had caught up",
        patches=_joins_without_broker_epoch,
    ),
    Mutant(
        name="acknowledged_on_append",
        breaks="R5: acks=all answers when the leader has the record",
        patches=_acknowledges_on_append,
    ),
    Mutant(
        name="begins_to_wait_without_looking",
        breaks="R13, R5: a wait begins for a high watermark that has passed, or in a leadership that has ended",
        patches=_begins_to_wait_without_looking,
        plan=IN_TURNS,
    ),
    Mutant(
        name="high_watermark_not_withheld",
        breaks="R9: a new leader tells the high watermark that it knew as a follower",
        patches=lambda: [(Partition, "is_withheld", False)],
    ),
    Mutant(
        name="deletes_before_commit",
        breaks="T4: local segments go before the store has them",
        patches=_deletes_before_commit,
    ),
    Mutant(
        name="zombie_commits_segments",
        breaks="T3: an old leader's upload is committed in a newer leader epoch",
        patches=_zombie_commits_segments,
    ),
    Mutant(
        name="marker_not_removed",
        breaks="rule 8: after an I/O error of a log the marker stays, and the next start counts as clean",
        patches=_keeps_the_marker,
    ),
    Mutant(
        name="page_cache_trusted",
        breaks="rule 8: what an fsync that failed has left in the page cache is taken for what is on the disk",
        patches=_trusts_the_page_cache,
    ),
    Mutant(
        name="zombie_commits_offsets",
        breaks="R10: commits of offsets are not fenced by the epoch of the group's slot",
        patches=_zombie_commits_offsets,
    ),
    Mutant(
        name="remembers_offsets_for_ever",
        breaks="R12: a coordinator that lost its slot and does not know it answers with offsets of before",
        patches=lambda: [(offset_memory, "may_answer", lambda *, asked_ms, now_ms: True)],
        plan=Plan(groups=12),
    ),
    Mutant(
        name="serves_uncommitted",
        breaks="R6: consumers read above the high watermark",
        patches=_serves_uncommitted,
    ),
    Mutant(
        name="uploads_uncommitted",
        breaks="T1: segments above the high watermark are uploaded",
        patches=_uploads_uncommitted,
    ),
    Mutant(
        name="serves_what_went_back",
        breaks="R14: a database that has lost what was seen is gone on with",
        patches=_serves_what_went_back,
        plan=FORGETFUL,
    ),
)

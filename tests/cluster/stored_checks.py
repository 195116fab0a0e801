"""What must hold of a partition's bytes at rest, whoever wrote them: replicas, catalogue and objects agree.

Owns these checks and the one log that they leave: offset by offset, which value stands there. Pure.
"""

from itertools import combinations, pairwise

from tests.cluster.evidence import PartitionEvidence, StoredBatch, StoredLog
from tests.cluster.violations import Found, Violation


def check_stored(evidence: PartitionEvidence, found: Found) -> dict[int, int]:
    """The partition's log as offset and value, from the objects first; violations go to `found`."""
    for log in (*evidence.replicas.values(), *evidence.objects.values()):
        _check_one(evidence, log, found)
    _check_replicas(evidence, found)
    _check_catalogue(evidence, found)
    _check_tiers(evidence, found)
    return _whole_log(evidence, found)


def _check_one(evidence: PartitionEvidence, log: StoredLog, found: Found) -> None:
    for damage in log.damage:
        found.add(Violation.DAMAGED, f"{evidence.name}, {log.name}: {damage}")
    for before, after in pairwise(log.batches):
        if after.base_offset != before.end_offset:
            found.add(
                Violation.GAP, f"{evidence.name}, {log.name}: {after.base_offset} follows after {before.end_offset}"
            )
        if after.leader_epoch < before.leader_epoch:
            found.add(
                Violation.DIVERGENT,
                f"{evidence.name}, {log.name}: leader epoch {after.leader_epoch} at {after.base_offset}"
                f" follows {before.leader_epoch}",
            )
    for batch in log.batches:
        offsets = [offset for offset, _ in log.values[batch]] if batch in log.values else []
        if offsets != list(range(batch.base_offset, batch.end_offset)):
            found.add(Violation.GAP, f"{evidence.name}, {log.name}: the batch at {batch.base_offset} lacks offsets")


def differing(one: StoredLog, other: StoredLog) -> tuple[StoredBatch | None, StoredBatch | None] | None:
    """The first pair of batches that differ in the offsets that both logs have; None when there is none."""
    if not one.batches or not other.batches:
        return None
    start = max(one.start_offset, other.start_offset)
    end = min(one.end_offset, other.end_offset)
    ours = {batch.base_offset: batch for batch in one.batches if start <= batch.base_offset < end}
    theirs = {batch.base_offset: batch for batch in other.batches if start <= batch.base_offset < end}
    for base_offset in sorted(ours.keys() | theirs.keys()):
        if ours.get(base_offset) != theirs.get(base_offset):
            return ours.get(base_offset), theirs.get(base_offset)
    return None


def _check_replicas(evidence: PartitionEvidence, found: Found) -> None:
    for (one_id, one), (other_id, other) in combinations(sorted(evidence.replicas.items()), 2):
        pair = differing(one, other)
        if pair is not None:
            found.add(
                Violation.DIVERGENT, f"{evidence.name}: broker {one_id} has {pair[0]}, broker {other_id} {pair[1]}"
            )
    ends = {broker_id: max(log.end_offset, 0) for broker_id, log in evidence.replicas.items()}
    # A replica without a batch of its own may be all cold.
    local = {broker_id: end for broker_id, end in ends.items() if end or evidence.cold_end_offset == 0}
    if len(set(local.values())) > 1:
        found.add(Violation.DIVERGENT, f"{evidence.name}: after healing the replicas end at {ends}")


def _check_catalogue(evidence: PartitionEvidence, found: Found) -> None:
    expected = evidence.log_start_offset
    for number, row in enumerate(evidence.rows):
        if row.base_offset > expected:
            found.add(Violation.CATALOGUE_HOLE, f"{evidence.name}: nothing from {expected} to {row.base_offset}")
        elif row.base_offset < expected and (number > 0 or row.end_offset <= expected):
            found.add(
                Violation.CATALOGUE_OVERLAP,
                f"{evidence.name}: {row.object_key} begins below {expected}, where one ends",
            )
        expected = max(expected, row.end_offset)
    if expected < evidence.cold_end_offset:
        found.add(
            Violation.CATALOGUE_HOLE, f"{evidence.name}: rows end at {expected}, cold end {evidence.cold_end_offset}"
        )
    elif evidence.rows and expected > evidence.cold_end_offset:
        found.add(
            Violation.CATALOGUE_OVERLAP, f"{evidence.name}: rows end at {expected}, cold end {evidence.cold_end_offset}"
        )
    for row in evidence.rows:
        log = evidence.objects[row.object_key]
        if not log.damage and (log.start_offset, log.end_offset) != (row.base_offset, row.end_offset):
            found.add(
                Violation.CATALOGUE_HOLE,
                f"{evidence.name}: {row.object_key} holds {log.start_offset} to {log.end_offset}",
            )


def _check_tiers(evidence: PartitionEvidence, found: Found) -> None:
    for log in evidence.objects.values():
        for broker_id, replica in evidence.replicas.items():
            pair = differing(log, replica)
            if pair is not None:
                found.add(
                    Violation.HOT_AND_COLD_DIFFER,
                    f"{evidence.name}: {log.name} has {pair[0]}, broker {broker_id} {pair[1]}",
                )


def _whole_log(evidence: PartitionEvidence, found: Found) -> dict[int, int]:
    whole: dict[int, int] = {}
    replicas = sorted(evidence.replicas.values(), key=lambda log: (log.end_offset, -log.start_offset))
    for log in (*replicas, *(evidence.objects[row.object_key] for row in evidence.rows)):
        for values in log.values.values():
            whole.update((offset, value) for offset, value in values if offset >= evidence.log_start_offset)
    if whole:
        missing = sorted(set(range(evidence.log_start_offset, max(whole) + 1)) - whole.keys())
        if missing:
            found.add(
                Violation.GAP, f"{evidence.name}: {len(missing)} offsets are nowhere, {missing[0]} to {missing[-1]}"
            )
    return whole

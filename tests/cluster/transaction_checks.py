"""Exactly once, held against what was left at rest: loops of transactions, their inputs, their outputs, their offsets.

Owns the checks of transactions. Every loop makes one record for each input in each output partition, and sends the
inputs' offsets with the same transaction. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.cluster.evidence import STRAY, PartitionEvidence, StoredBatch, StoredLog
from tests.cluster.history import Kind, Operation, Outcome, attempt_of, input_of, producer_of, sequence_of
from tests.cluster.stored_checks import check_stored
from tests.cluster.violations import Found, Violation
from tiered.formats.aborted_ranges import AbortedRanges
from tiered.formats.control_record import MarkerType

LAST_WORD = 49
"""The producer of the last record of each output, which is in no transaction: whoever has read it has read all."""


@dataclass(slots=True, kw_only=True)
class DecidedLog:
    """What became of each record of one output, by its offset, as the markers say."""

    committed: dict[int, int] = field(default_factory=dict)
    aborted: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopGroup:
    """Loops that share the inputs, by their numbers in the history, and their group's offsets by the place of the
    input among all inputs."""

    clients: frozenset[int]
    committed_offsets: Mapping[int, int]


@dataclass(slots=True, kw_only=True)
class TransactionsVerdict:
    """How many transactions there were, and what was wrong with them."""

    found: Found
    commits: int = 0
    aborts: int = 0
    unknown: int = 0
    unknown_that_were_committed: int = 0
    inputs: int = 0
    polled: int = 0
    objects: int = 0


def check_transactions(
    operations: Iterable[Operation],
    inputs: Sequence[PartitionEvidence],
    outputs: Sequence[PartitionEvidence],
    groups: Sequence[LoopGroup],
    readers: Sequence[int],
) -> TransactionsVerdict:
    """The verdict. Each of the `readers` read every output from its beginning to its end, committed records alone."""
    verdict = TransactionsVerdict(found=Found())
    found = verdict.found
    history = list(operations)
    logs = {evidence.index: _decided(evidence, found) for evidence in outputs}
    for evidence in outputs:
        _check_objects(evidence, logs[evidence.index], found)
        verdict.objects += len(evidence.objects)
    _check_answers(history, list(logs.values()), verdict)
    for group in groups:
        _check_inputs(inputs, outputs, logs, group, verdict)
    _check_reads(history, outputs, logs, readers, verdict)
    return verdict


def _decided(evidence: PartitionEvidence, found: Found) -> DecidedLog:
    check_stored(evidence, found)
    batches: dict[int, tuple[StoredLog, StoredBatch]] = {}
    for log in (*sorted(evidence.replicas.values(), key=lambda each: each.end_offset), *evidence.objects.values()):
        batches.update((batch.base_offset, (log, batch)) for batch in log.batches)
    decided = DecidedLog()
    open_: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for base_offset in sorted(batches):
        log, batch = batches[base_offset]
        if (marker := log.markers.get(batch)) is not None:
            outcome = decided.committed if marker is MarkerType.COMMIT else decided.aborted
            outcome.update(open_.pop(log.producers[batch], []))
        elif batch in log.producers:
            open_[log.producers[batch]] += log.values[batch]
        else:
            decided.committed.update(log.values[batch])
    for producer_id, values in open_.items():
        decided.undecided.update(values)
        found.add(
            Violation.HANGING,
            f"{evidence.name}: {len(values)} records of producer id {producer_id} from {values[0][0]} on lack a marker",
        )
    for offset, value in sorted((decided.committed | decided.aborted | decided.undecided).items()):
        if value == STRAY:
            found.add(Violation.STRAY, f"{evidence.name} at {offset}")
    return decided


def _check_objects(evidence: PartitionEvidence, decided: DecidedLog, found: Found) -> None:
    """Who has an object alone, and what it says of aborted transactions, finds the committed records in it."""
    for row in evidence.rows:
        log = evidence.objects[row.object_key]
        ranges = AbortedRanges(log.aborted)
        told = {
            offset: value
            for batch in log.batches
            if batch not in log.markers and not (batch in log.producers and ranges.hold(log.producers[batch], batch[0]))
            for offset, value in log.values[batch]
        }
        there = {offset: value for offset, value in decided.committed.items() if offset in _offsets(log)}
        differing = sorted(told.items() ^ there.items())
        if differing:
            offset, value = differing[0]
            found.add(
                Violation.BUCKET_READER_DIFFERS,
                f"{evidence.name}, {log.name}: {len(differing)} records, the first at {offset}: {_words(value)} is"
                f" {'told' if (offset, value) in told.items() else 'not told'}",
            )


def _offsets(log: StoredLog) -> range:
    return range(log.start_offset, log.end_offset)


def _check_answers(history: Sequence[Operation], logs: Sequence[DecidedLog], verdict: TransactionsVerdict) -> None:
    """All or nothing, and what was answered."""
    found = verdict.found
    by_log = [_by_attempt(log.committed) for log in logs]
    attempts = {attempt for each in by_log for attempt in each}
    for attempt in sorted(attempts):
        if len({frozenset(each.get(attempt, ())) for each in by_log}) > 1:
            counts = [len(each.get(attempt, ())) for each in by_log]
            found.add(Violation.HALF_A_TRANSACTION, f"{_attempt(attempt)} has {counts} records in the outputs")
    for operation in history:
        if operation.kind not in (Kind.COMMIT_TRANSACTION, Kind.ABORT_TRANSACTION):
            continue
        attempt = attempt_of(operation.value)
        counts = [len(each.get(attempt, ())) for each in by_log]
        words = f"{_attempt(attempt)}, answered at {operation.ended_us} us, has {counts} of {operation.offset} records"
        if operation.outcome is not Outcome.OK:
            verdict.unknown += 1
            verdict.unknown_that_were_committed += any(counts)
        elif operation.kind is Kind.COMMIT_TRANSACTION:
            verdict.commits += 1
            if any(count != operation.offset for count in counts):
                found.add(Violation.COMMIT_LOST, words)
        else:
            verdict.aborts += 1
            if any(counts):
                found.add(Violation.ABORTED_APPEARS, words)


def _by_attempt(log: Mapping[int, int]) -> dict[tuple[int, int], set[int]]:
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    for value in log.values():
        if value != STRAY and producer_of(value) != LAST_WORD:
            found[attempt_of(value)].add(value)
    return found


def _check_inputs(
    inputs: Sequence[PartitionEvidence],
    outputs: Sequence[PartitionEvidence],
    logs: Mapping[int, DecidedLog],
    group: LoopGroup,
    verdict: TransactionsVerdict,
) -> None:
    """Each input below the group's offset is in each output once, in the inputs' order; none above it is."""
    found = verdict.found
    for output in outputs:
        places: dict[int, list[int]] = defaultdict(list)
        for offset, value in sorted(logs[output.index].committed.items()):
            if producer_of(value) in group.clients:
                places[input_of(value)].append(offset)
        for source in inputs:
            end_offset = group.committed_offsets.get(source.index, 0)
            newest = -1
            for offset, value in sorted(check_stored(source, Found()).items()):
                number = sequence_of(value)
                there = places.pop(number, [])
                words = f"{output.name}: number {number} ({source.name} at {offset}) is at {there}"
                verdict.inputs += bool(there) and output is outputs[0]
                if len(there) > 1:
                    found.add(Violation.INPUT_TWICE, words)
                elif there and offset >= end_offset:
                    found.add(Violation.HALF_A_TRANSACTION, f"{words}; the group is at {end_offset}")
                elif not there and offset < end_offset:
                    found.add(Violation.INPUT_NEVER, f"{words}; the group is at {end_offset}")
                if there:
                    if there[0] < newest:
                        found.add(Violation.REORDERED, f"{words}, one before it at {newest}")
                    newest = there[0]
        for number, offsets in places.items():
            found.add(Violation.STRAY, f"{output.name} at {offsets}: number {number}, which is no input")


def _check_reads(
    history: Sequence[Operation],
    outputs: Sequence[PartitionEvidence],
    logs: Mapping[int, DecidedLog],
    readers: Sequence[int],
    verdict: TransactionsVerdict,
) -> None:
    found = verdict.found
    names = {evidence.index: evidence.name for evidence in outputs}
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    for operation in history:
        if operation.kind not in (Kind.POLL, Kind.ERROR):
            continue
        where = f"{names[operation.partition]} at {operation.offset}, consumer {operation.client}"
        if operation.kind is Kind.ERROR:
            found.add(Violation.CONSUMER_ERROR, f"{where} was told error {operation.value}")
            continue
        verdict.polled += 1
        so_far = seen[operation.client, operation.partition]
        if so_far and operation.offset <= so_far[-1]:
            found.add(Violation.NON_MONOTONIC_POLL, f"{where}: {so_far[-1]} came before")
        so_far.append(operation.offset)
        log = logs[operation.partition]
        if log.committed.get(operation.offset) == operation.value:
            continue
        if (log.aborted | log.undecided).get(operation.offset) == operation.value:
            found.add(Violation.ABORTED_APPEARS, f"{where}: read {_words(operation.value)}")
        else:
            found.add(Violation.VANISHED_READ, f"{where}: read {_words(operation.value)}")
    for reader in readers:
        for index, log in logs.items():
            missed = sorted(log.committed.keys() - set(seen[reader, index]))
            if missed:
                found.add(
                    Violation.UNSEEN,
                    f"{names[index]}: consumer {reader} never saw {len(missed)} committed records,"
                    f" {missed[0]} to {missed[-1]}",
                )


def _attempt(attempt: tuple[int, int]) -> str:
    client, number = attempt
    return f"attempt {number} of loop {client}"


def _words(value: int) -> str:
    if value == STRAY:
        return "something that nobody sent"
    return f"input {input_of(value)} of {_attempt(attempt_of(value))}"

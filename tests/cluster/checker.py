"""Holds a history against what was left at rest, and finds every broken promise.

Owns the checks of operations; those of bytes at rest are `stored_checks`. Pure: it reads no clock and opens nothing.
Unknown sends may appear zero times or once; a commit whose outcome is unknown may take effect late, under the
assignment that it was sent in.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.cluster.evidence import STRAY, PartitionEvidence
from tests.cluster.history import Kind, Operation, Outcome, producer_of, sequence_of
from tests.cluster.stored_checks import check_stored
from tests.cluster.violations import Found, Violation


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What a run was, in numbers, and what was wrong with it."""

    found: Found
    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    unknown_that_appeared: int = 0
    acknowledged_acks_1: int = 0
    lost_acks_1: int = 0
    """Allowed: one acknowledgement promises nothing."""
    polled: int = 0
    commits: int = 0
    stored: int = 0
    logs: dict[int, dict[int, int]] = field(default_factory=dict)


def check(
    operations: Iterable[Operation], partitions: Sequence[PartitionEvidence], watchers: Sequence[frozenset[int]]
) -> Verdict:
    """The verdict. Each of `watchers` is a set of consumers that together had to see every record."""
    verdict = Verdict(found=Found())
    names = {evidence.index: evidence.name for evidence in partitions}
    for evidence in partitions:
        log = check_stored(evidence, verdict.found)
        verdict.logs[evidence.index] = log
        verdict.stored += len(log)
    history = list(operations)
    _check_sends(history, names, verdict)
    seen = _check_polls(history, names, verdict)
    _check_unseen(seen, names, watchers, verdict)
    _check_commits(history, names, verdict)
    return verdict


def _check_sends(history: Sequence[Operation], names: dict[int, str], verdict: Verdict) -> None:
    found = verdict.found
    sent: dict[int, Operation] = {}
    by_offset: dict[tuple[int, int], Operation] = {}
    values = {partition: set(log.values()) for partition, log in verdict.logs.items()}
    for operation in history:
        if operation.kind not in (Kind.SEND, Kind.SEND_ACKS_1):
            continue
        sent[operation.value] = operation
        if operation.kind is Kind.SEND_ACKS_1:
            _note_acks_1(operation, verdict)
            continue
        if operation.outcome is not Outcome.OK:
            verdict.unknown += operation.outcome is Outcome.UNKNOWN
            verdict.failed += operation.outcome is Outcome.FAIL
            continue
        verdict.acknowledged += 1
        if operation.offset < 0:
            if operation.value not in values.get(operation.partition, ()):
                words = f"{names[operation.partition]}: {_words(operation.value)}, acknowledged with a later one"
                found.add(Violation.LOST, f"{words}, is nowhere")
            continue
        place = (operation.partition, operation.offset)
        if place in by_offset:
            found.add(Violation.TWO_VALUES, f"{_where(names, *place)}: two sends were acknowledged there")
        by_offset[place] = operation
        stored = verdict.logs.get(operation.partition, {}).get(operation.offset)
        if stored != operation.value:
            found.add(
                Violation.LOST,
                f"{_where(names, *place)}: {_words(operation.value)}, acknowledged at {operation.ended_us} us;"
                f" there is {_words(stored)}",
            )
    for partition, log in verdict.logs.items():
        _check_order(partition, log, sent, names, verdict)


def _note_acks_1(operation: Operation, verdict: Verdict) -> None:
    if operation.outcome is Outcome.OK:
        verdict.acknowledged_acks_1 += 1
        log = verdict.logs.get(operation.partition, {})
        verdict.lost_acks_1 += log.get(operation.offset) != operation.value


def _check_order(
    partition: int, log: dict[int, int], sent: dict[int, Operation], names: dict[int, str], verdict: Verdict
) -> None:
    """No idempotent producer's value stands there twice, or before one that was sent earlier."""
    found = verdict.found
    first_seen: dict[int, int] = {}
    newest: dict[int, int] = {}
    for offset in sorted(log):
        value = log[offset]
        operation = sent.get(value)
        where = _where(names, partition, offset)
        if value == STRAY or operation is None or operation.partition != partition:
            found.add(Violation.STRAY, f"{where}: {_words(value)}")
            continue
        if operation.kind is Kind.SEND_ACKS_1:
            continue
        if operation.outcome is Outcome.FAIL:
            found.add(Violation.FAILED_APPEARS, f"{where}: {_words(value)}")
        verdict.unknown_that_appeared += operation.outcome is Outcome.UNKNOWN
        if value in first_seen:
            found.add(Violation.DUPLICATE, f"{where}: {_words(value)} stands at {first_seen[value]} too")
            continue
        first_seen[value] = offset
        producer = producer_of(value)
        if sequence_of(value) < newest.get(producer, -1):
            found.add(Violation.REORDERED, f"{where}: {_words(value)} follows number {newest[producer]}")
        newest[producer] = max(sequence_of(value), newest.get(producer, -1))


def _check_polls(
    history: Sequence[Operation], names: dict[int, str], verdict: Verdict
) -> dict[int, dict[int, set[int]]]:
    """Which offsets each consumer saw of each partition."""
    found = verdict.found
    expected: dict[tuple[int, int], int] = {}
    seen: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for operation in history:
        place = (operation.client, operation.partition)
        if operation.kind is Kind.ERROR:
            found.add(
                Violation.CONSUMER_ERROR,
                f"{_where(names, operation.partition, operation.offset)}: consumer {operation.client}"
                f" was told error {operation.value} at {operation.started_us} us",
            )
        elif operation.kind is Kind.SEEK and operation.offset < 0:
            expected.pop(place, None)  # Nobody could say where it begins.
        elif operation.kind is Kind.SEEK:
            expected[place] = operation.offset
        elif operation.kind is Kind.POLL:
            verdict.polled += 1
            where = f"{_where(names, operation.partition, operation.offset)}, consumer {operation.client}"
            awaited = expected.get(place)
            if awaited is not None and operation.offset < awaited:
                found.add(Violation.NON_MONOTONIC_POLL, f"{where}: {awaited} was to follow")
            elif awaited is not None and operation.offset > awaited:
                found.add(Violation.GAP, f"{where}: {awaited} was to follow")
            expected[place] = operation.offset + 1
            seen[operation.client][operation.partition].add(operation.offset)
            stored = verdict.logs.get(operation.partition, {}).get(operation.offset)
            if stored != operation.value:
                found.add(
                    Violation.VANISHED_READ,
                    f"{where}: read {_words(operation.value)} at {operation.started_us} us, there is {_words(stored)}",
                )
    return seen


def _check_unseen(
    seen: dict[int, dict[int, set[int]]], names: dict[int, str], watchers: Sequence[frozenset[int]], verdict: Verdict
) -> None:
    for consumers in watchers:
        for partition, log in verdict.logs.items():
            union: set[int] = set()
            for consumer in consumers:
                union |= seen[consumer][partition]
            missed = sorted(log.keys() - union)
            if missed:
                verdict.found.add(
                    Violation.UNSEEN,
                    f"{names[partition]}: consumers {sorted(consumers)} never saw {len(missed)} offsets,"
                    f" {missed[0]} to {missed[-1]}",
                )


def _check_commits(history: Sequence[Operation], names: dict[int, str], verdict: Verdict) -> None:
    groups: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    for operation in history:
        if operation.kind in (Kind.COMMIT, Kind.FETCHED):
            groups[operation.client, operation.partition].append(operation)
    for (group, partition), operations in groups.items():
        commits = [each for each in operations if each.kind is Kind.COMMIT and each.outcome is not Outcome.FAIL]
        verdict.commits += sum(each.outcome is Outcome.OK for each in commits)
        fetches = [each for each in operations if each.kind is Kind.FETCHED and each.outcome is Outcome.OK]
        for number, fetched in enumerate(fetches):
            words = f"{names[partition]}, group {group}: {fetched.offset} was fetched at {fetched.started_us} us"
            tried = [each for each in commits if each.started_us < fetched.ended_us and each.offset == fetched.offset]
            if fetched.offset >= 0 and not tried:
                verdict.found.add(Violation.COMMIT_FROM_NOWHERE, words)
            # What is known to have been committed before: by an answer, or because somebody fetched it.
            known = [
                each
                for each in (*commits, *fetches[:number])
                if each.outcome is Outcome.OK and each.ended_us < fetched.started_us
            ]
            newest = max(known, key=lambda each: each.offset, default=None)
            if newest is None or fetched.offset >= newest.offset:
                continue
            came_late = any(
                each.outcome is Outcome.UNKNOWN and newest.kind is Kind.COMMIT and each.value == newest.value
                for each in tried
            )
            if not came_late:
                verdict.found.add(Violation.COMMIT_WENT_BACK, f"{words}, after {newest.offset} at {newest.ended_us} us")


def _where(names: dict[int, str], partition: int, offset: int) -> str:
    return f"{names.get(partition, partition)} at {offset}"


def _words(value: int | None) -> str:
    if value is None:
        return "nothing"
    if value == STRAY:
        return "something that nobody sent"
    return f"number {sequence_of(value)} of producer {producer_of(value)}"

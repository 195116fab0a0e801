"""Verifies a store with Spark: the work of `tiered verify`, spread over executors.

    spark-submit spark/jobs/verify.py s3://logs/prod --json

Owns how the work is cut: the driver walks the checkpoints in waves, tasks check segments of about `TASK_BYTES`
together, each as `tiered verify` does it. The driver alone decides what counts. Must never ask a broker or SQL, never
write to the store, and never hold more than one wave of rows.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tiered.cold_read import store_of
from pyspark_tiered.job_run import watched
from tiered.cli.arguments import Parser, json_option, number
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed
from tiered.cli.main import ended
from tiered.cli.output import counted, print_json
from tiered.cli.progress import long_work
from tiered.cli.store import verify as words
from tiered.cli.store.arguments import fraction
from tiered.cold.bucket.orphans import find_orphans
from tiered.cold.patient_store import PatientStore
from tiered.cold.verify.scope import Scope, ScopedPartition, find_scope, group_faults, is_still_named, pages_of
from tiered.cold.verify.segments import CheckedSegment, SegmentVerifier
from tiered.cold.verify.verification import MAX_UNREADABLE, Problem, VerificationState
from tiered.errors import StoreUnavailable
from tiered.formats import object_key
from tiered.formats.segment_check import Fault, FaultKind, Place, of_segment
from tiered.rules.segments.sampling import ChunkSample

TASK_BYTES = 256 << 20
WAVE_SEGMENTS = 50_000
"""About 50 MiB of rows on the driver."""
TASKS_PER_CORE = 4
THREADS_PER_TASK = 2
_MAX_ORPHANS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A task's verdict on the segment number `index` of the wave; `checked` is None when brokers gave it up."""

    index: int
    checked: CheckedSegment | None
    is_unreadable: bool = False


def build_parser() -> Parser:
    parser = Parser(
        prog="verify.py",
        description="Check everything in an object store, from the store alone, on all of Spark's executors: every "
        "chunk's SHA-256, every batch's CRC, the offsets and the chain of roots, as `tiered verify` does. "
        "Exit code 0 when all of it is whole, 1 when something is bad or could not be read, 2 usage.",
    )
    parser.add_argument("store", metavar="STORE_URL", help="s3://bucket/prefix or file:///path, as executors see it")
    parser.add_argument("-t", "--topic", metavar="TOPIC", action="append", help="this topic alone; may be repeated")
    parser.add_argument(
        "--fraction", metavar="F", type=fraction, default=1.0, help="read this share of all chunks, such as 0.1 (1)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=number, default=0, help="which share, as `tiered verify` has it (0)"
    )
    parser.add_argument("--orphans", action="store_true", help="tell of objects that no checkpoint names as well")
    json_option(parser, "print one JSON object with the fields of `tiered verify --json`")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job and gives the exit codes of `tiered verify`."""
    arguments = build_parser().parse_args(argv)
    return ended("verify.py", lambda: run(arguments))


def run(arguments: argparse.Namespace) -> int:
    sample = ChunkSample(fraction=arguments.fraction, seed=arguments.seed)
    store = store_of(arguments.store)
    spark = SparkSession.builder.appName("tiered-verify").getOrCreate()
    verifier = SpreadVerifier(spark, store.url, sample=sample, topics=arguments.topic)
    log_bytes, segments = verifier.survey()
    with long_work(int(log_bytes * min(1.0, sample.fraction)), counted(segments, "segment")) as show:

        def changed(checked_bytes: int, checked_segments: int) -> None:
            bad = f", {verifier.state.problem_count:,} bad" if verifier.state.problem_count else ""
            show(checked_bytes, f"{checked_segments:,} of {counted(segments, 'segment')}{bad}")

        try:
            state = verifier.run(changed, with_orphans=arguments.orphans)
        except PySparkException as error:
            raise CommandFailed(f"Spark gave up: {str(error).splitlines()[0]}") from error
    if arguments.json:
        print_json(words.as_json(state, store.url, sample, with_orphans=arguments.orphans))
    else:
        words.show(state, store.url, sample)
    return EXIT_OK if state.is_whole else EXIT_FAILED


class SpreadVerifier:
    """One run over the store at `url`. Raises InvalidConfig when there is nothing to verify, StoreUnavailable."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        *,
        sample: ChunkSample | None = None,
        topics: Collection[str] | None = None,
        wave_segments: int = WAVE_SEGMENTS,
    ) -> None:
        self._spark = spark
        self._url = url
        self._store = PatientStore(store_of(url))
        self._sample = sample or ChunkSample()
        self._topics = topics
        self._wave_segments = wave_segments
        self._suspects: dict[ScopedPartition, list[Fault]] = {}
        self.state = VerificationState()

    def survey(self) -> tuple[int, int]:
        """Bytes and segments that the checkpoints name, for a progress bar."""
        scope = find_scope(self._store, self._topics)
        log_bytes = segments = 0
        for partition in scope.partitions:
            for page in pages_of(self._store, scope, partition):
                log_bytes += sum(each.log_bytes for each in page.segments)
                segments += len(page.segments)
        return log_bytes, segments

    def run(
        self, changed: Callable[[int, int], None] = lambda _bytes, _segments: None, *, with_orphans: bool = False
    ) -> VerificationState:
        """What was found, when all has been looked at. `changed` takes the bytes and segments done so far."""
        scope = find_scope(self._store, self._topics)
        self.state.cluster_id = scope.cluster_id
        self.state.deleted_topics = scope.deleted_topics
        if scope.fault is not None:
            self._add(None, object_key.cluster_checkpoint_key(), scope.fault)
        for wave in self._waves(scope):
            self._check(wave, changed)
        self._confirm(scope)
        if self._topics is None:
            for key, fault in group_faults(self._store):
                self._add(None, key, fault)
        if with_orphans:
            for found, _ in zip(find_orphans(self._store, self._topics), range(_MAX_ORPHANS), strict=False):
                self.state.orphans.append(found)
        self.state.sort()
        return self.state

    def _waves(self, scope: Scope) -> Iterator[list[Place]]:
        """Every segment, so many at a time, in order of topics, partitions and offsets."""
        state = self.state
        wave: list[Place] = []
        for partition in scope.partitions:
            state.partitions += 1
            for page in pages_of(self._store, scope, partition):
                self._suspects.setdefault(partition, []).extend(page.faults)
                state.segments += len(page.segments)
                state.log_bytes += sum(each.log_bytes for each in page.segments)
                wave += page.places()
                while len(wave) >= self._wave_segments:
                    yield wave[: self._wave_segments]
                    wave = wave[self._wave_segments :]
        if wave:
            yield wave

    def _check(self, wave: list[Place], changed: Callable[[int, int], None]) -> None:
        context = self._spark.sparkContext
        state = self.state
        before_bytes, before_segments = state.checked_bytes, state.checked_segments
        done_bytes, done_segments = context.accumulator(0), context.accumulator(0)
        tasks = list(tasks_of(wave, cores=context.defaultParallelism))
        url, sample = self._url, self._sample

        def check(task: Iterable[list[tuple[int, Place]]]) -> Iterator[Checked]:
            for places in task:
                yield from check_places(url, sample, places, done_bytes, done_segments)

        checked = watched(
            lambda: context.parallelize(tasks, len(tasks)).mapPartitions(check).collect(),
            lambda: changed(before_bytes + done_bytes.value, before_segments + done_segments.value),
        )
        in_a_row = 0
        for each in sorted(checked, key=lambda found: found.index):
            in_a_row = in_a_row + 1 if each.is_unreadable else 0
            self._note(wave[each.index], each)
            if in_a_row >= MAX_UNREADABLE and each.checked is not None:
                raise StoreUnavailable(each.checked.faults[0].message)

    def _note(self, place: Place, found: Checked) -> None:
        state = self.state
        if found.checked is None:
            state.retired_segments += 1
            return
        if not found.is_unreadable:
            state.checked_segments += 1
            state.checked_chunks += found.checked.chunks
            state.checked_bytes += found.checked.size_bytes
            state.unread_bytes += place.segment.log_bytes - found.checked.size_bytes
        for fault in found.checked.faults:
            self._add(partition_of(place), place.segment.object_key, fault)

    def _add(self, partition: ScopedPartition | None, key: str, fault: Fault) -> None:
        topic, number_ = ("", -1) if partition is None else (partition.topic, partition.partition)
        self.state.add(Problem(topic=topic, partition=number_, object_key=key, fault=fault))

    def _confirm(self, scope: Scope) -> None:
        """Reports those faults of checkpoints that are there still: a leader may have been amid a change."""
        for partition, suspects in self._suspects.items():
            if suspects:
                again = {fault for page in pages_of(self._store, scope, partition) for fault in page.faults}
                for fault in suspects:
                    if fault in again:
                        self._add(partition, partition.head_key, fault)


def tasks_of(wave: Sequence[Place], *, cores: int) -> Iterator[list[tuple[int, Place]]]:
    """The wave cut into tasks: neighbours up to `TASK_BYTES` together, less where cores would have nothing to do."""
    wave_bytes = sum(place.segment.size_bytes for place in wave)
    task_bytes = min(TASK_BYTES, wave_bytes // (cores * TASKS_PER_CORE) + 1)
    task: list[tuple[int, Place]] = []
    size_bytes = 0
    for index, place in enumerate(wave):
        if task and size_bytes + place.segment.size_bytes > task_bytes:
            yield task
            task, size_bytes = [], 0
        task.append((index, place))
        size_bytes += place.segment.size_bytes
    if task:
        yield task


def partition_of(place: Place) -> ScopedPartition:
    return ScopedPartition(topic=place.topic, topic_id=place.topic_id, partition=place.partition)


def check_places(
    url: str,
    sample: ChunkSample,
    places: Sequence[tuple[int, Place]],
    done_bytes: "Accumulator[int]",
    done_segments: "Accumulator[int]",
) -> Iterator[Checked]:
    """The verdicts on a task's segments; those behind `MAX_UNREADABLE` that could not be had are not asked for."""
    store = PatientStore(store_of(url))
    unreadable: list[int] = []

    def check(numbered: tuple[int, Place]) -> Checked:
        index, place = numbered
        verifier = SegmentVerifier(store, sample, advance=lambda _bytes: None)
        try:
            if len(unreadable) >= MAX_UNREADABLE:
                raise StoreUnavailable(f"{MAX_UNREADABLE} segments before it could not be read either")
            checked = verifier.check(place)
            if checked.faults and not is_still_named(store, partition_of(place), place.segment):
                return Checked(index=index, checked=None)
        except StoreUnavailable as error:
            unreadable.append(index)
            fault = of_segment(place.segment, FaultKind.UNREADABLE, f"it could not be read: {error}")
            return Checked(
                index=index, checked=CheckedSegment(chunks=0, size_bytes=0, faults=(fault,)), is_unreadable=True
            )
        unreadable.clear()
        return Checked(index=index, checked=checked)

    with ThreadPoolExecutor(THREADS_PER_TASK, thread_name_prefix="verify") as threads:
        for found in threads.map(check, places):
            if found.checked is not None and not found.is_unreadable:
                done_bytes += found.checked.size_bytes
                done_segments += 1
            yield found


if __name__ == "__main__":
    sys.exit(main())

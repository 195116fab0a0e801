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
from itertools import islice

from pyspark import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_tiered.cold_read import store_of
from pyspark_tiered.job_run import job_session, watched
from tiered.cli.arguments import Parser, json_option, number
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed
from tiered.cli.main import ended
from tiered.cli.output import counted, print_json
from tiered.cli.progress import long_work
from tiered.cli.store import verify as words
from tiered.cli.store.arguments import fraction
from tiered.cold.read_only_store import PatientStore
from tiered.cold.verify.scope import Scope, is_still_named
from tiered.cold.verify.segments import CheckedSegment, SegmentVerifier
from tiered.cold.verify.verification import (
    MAX_UNREADABLE,
    Survey,
    VerificationFindings,
    VerificationState,
    survey,
    unreadable,
)
from tiered.errors import StoreUnavailable
from tiered.formats.segment_check import ExpectedSegment
from tiered.rules.segments.sampling import ChunkSample

TASK_BYTES = 256 << 20
WAVE_SEGMENTS = 50_000
"""About 50 MiB of rows on the driver."""
TASKS_PER_CORE = 4
THREADS_PER_TASK = 2


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
    spark = job_session("tiered-verify")
    verifier = SpreadVerifier(spark, store.url, sample=sample, topics=arguments.topic)
    planned = verifier.survey()
    segments = counted(planned.segments, "segment")
    with long_work(int(planned.log_bytes * min(1.0, sample.fraction)), segments) as show:

        def changed(checked_bytes: int, checked_segments: int) -> None:
            bad = f", {verifier.state.problem_count:,} bad" if verifier.state.problem_count else ""
            show(checked_bytes, f"{checked_segments:,} of {segments}{bad}")

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
        self._findings = VerificationFindings(self._store, topics)
        self.state = self._findings.state

    def survey(self) -> Survey:
        """Bytes and segments that the checkpoints name, for a progress bar."""
        return survey(self._store, self._topics)

    def run(
        self, changed: Callable[[int, int], None] = lambda _bytes, _segments: None, *, with_orphans: bool = False
    ) -> VerificationState:
        """The findings, when everything has been checked. `changed` takes the bytes and segments done so far."""
        scope = self._findings.begin()
        for wave in self._waves(scope):
            self._check(wave, changed)
        self._findings.end(scope, with_orphans=with_orphans)
        return self.state

    def _waves(self, scope: Scope) -> Iterator[list[ExpectedSegment]]:
        """Every segment, so many at a time, in order of topics, partitions and offsets."""
        places = (place for page in self._findings.pages(scope) for place in page.places())
        while wave := list(islice(places, self._wave_segments)):
            yield wave

    def _check(self, wave: list[ExpectedSegment], changed: Callable[[int, int], None]) -> None:
        context = self._spark.sparkContext
        state = self.state
        before_bytes, before_segments = state.checked_bytes, state.checked_segments
        done_bytes, done_segments = context.accumulator(0), context.accumulator(0)
        tasks = list(tasks_of(wave, cores=context.defaultParallelism))
        url, sample = self._url, self._sample

        def check(task: Iterable[list[tuple[int, ExpectedSegment]]]) -> Iterator[Checked]:
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

    def _note(self, place: ExpectedSegment, found: Checked) -> None:
        state = self.state
        if found.checked is None:
            state.retired_segments += 1
            return
        if found.is_unreadable:
            self._findings.add_all(place, found.checked.faults)
        else:
            self._findings.checked(place, found.checked)
            state.checked_bytes += found.checked.size_bytes


def tasks_of(wave: Sequence[ExpectedSegment], *, cores: int) -> Iterator[list[tuple[int, ExpectedSegment]]]:
    """The wave cut into tasks: neighbours up to `TASK_BYTES` together, less where cores would have nothing to do."""
    wave_bytes = sum(place.segment.size_bytes for place in wave)
    task_bytes = min(TASK_BYTES, wave_bytes // (cores * TASKS_PER_CORE) + 1)
    task: list[tuple[int, ExpectedSegment]] = []
    size_bytes = 0
    for index, place in enumerate(wave):
        if task and size_bytes + place.segment.size_bytes > task_bytes:
            yield task
            task, size_bytes = [], 0
        task.append((index, place))
        size_bytes += place.segment.size_bytes
    if task:
        yield task


def check_places(
    url: str,
    sample: ChunkSample,
    places: Sequence[tuple[int, ExpectedSegment]],
    done_bytes: "Accumulator[int]",
    done_segments: "Accumulator[int]",
) -> Iterator[Checked]:
    """The verdicts on a task's segments; those behind `MAX_UNREADABLE` that could not be had are not asked for."""
    store = PatientStore(store_of(url))
    not_given: list[int] = []

    def check(numbered: tuple[int, ExpectedSegment]) -> Checked:
        index, place = numbered
        verifier = SegmentVerifier(store, sample, advance=lambda _bytes: None, looks_at_records=True)
        try:
            if len(not_given) >= MAX_UNREADABLE:
                raise StoreUnavailable(f"{MAX_UNREADABLE} segments before it could not be read either")
            checked = verifier.check(place)
            if checked.faults and not is_still_named(store, place):
                return Checked(index=index, checked=None)
        except StoreUnavailable as error:
            not_given.append(index)
            nothing = CheckedSegment(chunks=0, size_bytes=0, faults=(unreadable(place, error),))
            return Checked(index=index, checked=nothing, is_unreadable=True)
        not_given.clear()
        return Checked(index=index, checked=checked)

    with ThreadPoolExecutor(THREADS_PER_TASK, thread_name_prefix="verify") as threads:
        for found in threads.map(check, places):
            if found.checked is not None and not found.is_unreadable:
                done_bytes += found.checked.size_bytes
                done_segments += 1
            yield found


if __name__ == "__main__":
    sys.exit(main())

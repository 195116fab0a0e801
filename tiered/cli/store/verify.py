"""`tiered verify STORE_URL`: whether everything in the store is what was uploaded, by the bucket alone.

Owns what is shown of it and the exit code. `cold.verify.verification` does the work. Asks no broker and no SQL.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiered.cli.failure import EXIT_FAILED, EXIT_OK
from tiered.cli.output import counted, in_bytes, in_utc, print_json, say
from tiered.cli.progress import bar
from tiered.cold.bucket.orphans import Orphans
from tiered.cold.opening import open_store
from tiered.cold.verify.progress import ProgressFile
from tiered.cold.verify.verification import Problem, StoreVerifier, VerificationState
from tiered.formats.segment_check import FaultKind
from tiered.rules.segments.sampling import ChunkSample
from tiered.runtime import SystemClock

MAX_SHOWN = 100
_COUNTS = (
    "partitions", "segments", "log_bytes", "checked_segments", "checked_chunks", "checked_bytes", "unread_bytes",
    "known_segments", "retired_segments", "deleted_topics", "never_uploaded", "missing_offsets",
    "first_latest_upload_ms", "last_latest_upload_ms",
)  # fmt: skip
_UNDECIDED = {FaultKind.UNREADABLE, FaultKind.UNKNOWN_FORMAT}


def run(arguments: argparse.Namespace) -> int:
    """Prints what is wrong and what was checked; EXIT_FAILED where anything is wrong or could not be read."""
    sample = ChunkSample(fraction=arguments.fraction, seed=arguments.seed)
    store = open_store(arguments.store)
    with ExitStack() as stack:
        stack.callback(store.close)
        progress: ProgressFile | None = None
        if arguments.progress_file is not None:
            progress = stack.enter_context(
                ProgressFile(
                    Path(arguments.progress_file),
                    store_url=store.url,
                    sample=sample,
                    now_ms=SystemClock().now_ms(),
                )
            )
        verifier = StoreVerifier(
            store,
            sample=sample,
            topics=arguments.topic,
            parallel=arguments.parallel,
            progress=progress,
            with_orphans=arguments.orphans,
        )
        with _told_how_to_go_on(progress, arguments.progress_file):
            state = asyncio.run(_verify(verifier, sample))
        if progress is not None and state.is_whole:
            progress.remove()
        began_at_ms = progress.began_at_ms if progress is not None else -1
    if arguments.json:
        print_json(as_json(state, store.url, sample, with_orphans=arguments.orphans))
    else:
        show(state, store.url, sample, began_at_ms=began_at_ms)
        if progress is not None and not state.is_whole:
            say(f"{arguments.progress_file} keeps what is good: the same command looks at the rest alone")
    return EXIT_OK if state.is_whole else EXIT_FAILED


async def _verify(verifier: StoreVerifier, sample: ChunkSample) -> VerificationState:
    try:
        if not sys.stderr.isatty():
            return await verifier.run()
        survey = await verifier.survey()
        to_read = int(survey.log_bytes * min(1.0, sample.fraction))
        with bar(to_read, counted(survey.segments, "segment"), counts="bytes") as shown:

            def changed(state: VerificationState) -> None:
                bad = f", {state.problem_count:,} bad" if state.problem_count else ""
                shown(state.checked_bytes, f"{state.checked_segments:,} of {counted(survey.segments, 'segment')}{bad}")

            return await verifier.run(changed)
    finally:
        verifier.close()


@contextmanager
def _told_how_to_go_on(progress: ProgressFile | None, name: str | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if progress is not None:
            say(f"{counted(len(progress), 'segment')} found good; --progress-file {name} goes on", file=sys.stderr)
        raise


# Words


def show(state: VerificationState, url: str, sample: ChunkSample, *, began_at_ms: int = -1) -> None:
    """Prints what was found, in words; `began_at_ms` is when the run began that this one goes on from."""
    for problem in state.problems[:MAX_SHOWN]:
        say(in_words(problem))
    if state.problem_count > MAX_SHOWN:
        say(f"and {state.problem_count - MAX_SHOWN:,} more; --json lists up to 1,000")
    if state.problems:
        say()
    for note in _notes(state, began_at_ms):
        say(f"note: {note}")
    share = "" if sample.is_everything else f", a sample of {sample.fraction:g} with seed {sample.seed},"
    say(
        f"checked {state.checked_segments:,} of {counted(state.segments, 'segment')} in "
        f"{counted(state.partitions, 'partition')}: {counted(state.checked_chunks, 'chunk')}{share} with "
        f"{in_bytes(state.checked_bytes)} of {in_bytes(state.log_bytes)}"
    )
    say(_what_brokers_may_have(state))
    if state.is_whole and sample.is_everything:
        say(f"whole: nothing wrong was found in {url}")
    elif state.is_whole:
        say(
            f"nothing wrong was found in this sample of {url}; {in_bytes(state.unread_bytes)} were not read. With "
            f"--fraction {sample.fraction:g} the seeds 0 to {sample.seeds - 1} together read everything"
        )
    else:
        # A store that does not answer has not lost anything, as far as anybody knows.
        word = "BAD" if any(each.fault.kind not in _UNDECIDED for each in state.problems) else "UNDECIDED"
        say(f"{word}: {counted(state.problem_count, 'problem')} in {url}; the first: {in_words(state.problems[0])}")


def in_words(problem: Problem) -> str:
    """The problem in one line: where, what, and in which object."""
    fault = problem.fault
    where = f"{problem.topic}-{problem.partition}" if problem.topic else "the cluster"
    if fault.first_offset >= 0:
        where += f" offsets {fault.first_offset}..{fault.last_offset}"
    if fault.chunk is not None:
        where += f" chunk {fault.chunk}"
    return f"{where}: {fault.kind}: {fault.message} [{problem.object_key}]"


def _notes(state: VerificationState, began_at_ms: int) -> Iterator[str]:
    if state.known_segments:
        yield (
            f"{counted(state.known_segments, 'segment')} were found good earlier, by a run that began "
            f"{in_utc(began_at_ms) or 'at an unknown time'}; remove the progress file to look at them again"
        )
    if state.retired_segments:
        yield f"{counted(state.retired_segments, 'segment')} were given up by retention meanwhile"
    if state.deleted_topics:
        yield f"{counted(state.deleted_topics, 'deleted topic')} left out: brokers remove them with their objects"
    for each in state.orphans:
        yield _orphans_in_words(each)


def _what_brokers_may_have(state: VerificationState) -> str:
    """Until when the store has the records: what came later is on disks alone, and cannot be seen from here."""
    sentences = []
    if state.never_uploaded:
        sentences.append(f"the store has nothing of {counted(state.never_uploaded, 'partition')}")
    if state.first_latest_upload_ms is not None:
        times = dict.fromkeys(map(in_utc, (state.first_latest_upload_ms, state.last_latest_upload_ms)))
        sentences.append(
            f"the latest upload of {'the others' if sentences else 'partitions'} is from {' to '.join(times)}"
        )
    if state.missing_offsets:
        sentences.append(f"the checkpoints know of {counted(state.missing_offsets, 'offset')} more")
    return "; ".join([*sentences, "what was written since is on brokers' disks alone"])


def _orphans_in_words(each: Orphans) -> str:
    why = "retired ones go after their grace, the others are being uploaded or were left by failed uploads"
    if not each.has_checkpoint:
        why = "the partition has no checkpoint that can be read"
    return (
        f"{each.topic}-{each.partition}: {counted(each.objects, 'object')} ({in_bytes(each.size_bytes)}, "
        f"{each.retired} retired) that no checkpoint names: {why} [{each.keys[0]}]"
    )


def as_json(state: VerificationState, url: str, sample: ChunkSample, *, with_orphans: bool) -> dict[str, Any]:
    """The findings for programs: the fields that docs/verify.md names."""
    problems = [_problem_as_json(each) for each in state.problems]
    return {
        "store": url,
        "cluster_id": state.cluster_id or None,
        "whole": None if state.is_whole and not sample.is_everything else state.is_whole,
        "first_problem": problems[0] if problems else None,
        "problem_count": state.problem_count,
        "problems": problems,
        "fraction": sample.fraction,
        "seed": sample.seed,
        **{name: getattr(state, name) for name in _COUNTS},
        "orphans": [{**asdict(each), "topic_id": str(each.topic_id)} for each in state.orphans]
        if with_orphans
        else None,
    }


def _problem_as_json(problem: Problem) -> dict[str, Any]:
    fault = problem.fault
    has_offsets = fault.first_offset >= 0
    return {
        "topic": problem.topic or None,
        "partition": problem.partition if problem.topic else None,
        "first_offset": fault.first_offset if has_offsets else None,
        "last_offset": fault.last_offset if has_offsets else None,
        "object_key": problem.object_key,
        "chunk": fault.chunk,
        "kind": str(fault.kind),
        "message": fault.message,
    }

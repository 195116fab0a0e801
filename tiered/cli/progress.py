"""How far long work is: a bar on a terminal, and nothing anywhere else, except lines of jobs that run for hours.

Owns the bar. Imports rich only where somebody sees it.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiered.cli.output import say
from tiered.runtime import SystemClock

Report = Callable[[int, int], None]
"""Takes the records done and the bytes of the input that they took."""
Show = Callable[[int, str], None]
"""Takes what is done, and what to say about it."""
LINE_MS = 10_000


@contextmanager
def progress_of(fd: int, what: str) -> Iterator[Report]:
    """Shows on stderr how much of the file behind `fd` is done, while the body runs.

    Shows nothing when stderr is no terminal, or when the input's size is unknown: a pipe, or a person who types.
    """
    size_bytes = _size_of_file(fd)
    if size_bytes is None or not sys.stderr.isatty():
        yield lambda _records, _position: None
        return
    with bar(size_bytes, f"0 records {what}") as show:
        yield lambda records, position: show(position, f"{records:,} records {what}")


@contextmanager
def bar(total: int, description: str, *, in_bytes: bool = True) -> Iterator[Show]:
    """Shows on stderr, which is a terminal, how much of `total` is done, while the body runs."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns += [DownloadColumn(binary_units=True)] if in_bytes else []
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done, words: progress.update(task, completed=done, description=words)


@contextmanager
def long_work(total: int, description: str, *, in_bytes: bool = True) -> Iterator[Show]:
    """A bar where stderr is a terminal, else a line on stderr every ten seconds: for jobs whose output is a log."""
    if sys.stderr.isatty():
        with bar(total, description, in_bytes=in_bytes) as show:
            yield show
        return
    clock = SystemClock()
    last_ms = clock.monotonic_ms()

    def line(done: int, words: str) -> None:
        nonlocal last_ms
        if clock.monotonic_ms() - last_ms >= LINE_MS:
            last_ms = clock.monotonic_ms()
            say(f"{done / max(1, total):.0%}: {words}", file=sys.stderr, flush=True)

    yield line


def _size_of_file(fd: int) -> int | None:
    status = os.fstat(fd)
    return status.st_size if stat.S_ISREG(status.st_mode) else None

"""How far long work is: a bar on a terminal, and nothing anywhere else, except lines of jobs that run for hours.

Owns the bar. Imports rich only where somebody sees it.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from tiered.cli.output import say
from tiered.runtime import SystemClock

Report = Callable[[int, int], None]
"""Takes the records done and the bytes of the input that they took."""
LINE_MS = 10_000


class Show(Protocol):
    """Takes what is done, what to say about it, and the total where that was not known at first."""

    def __call__(self, done: float, words: str, total: int | None = None, /) -> None: ...


@contextmanager
def progress_of(fd: int, what: str) -> Iterator[Report]:
    """Shows on stderr how much of the file behind `fd` is done, while the body runs.

    Shows nothing when stderr is no terminal, or when the input's size is unknown (a pipe, or a keyboard).
    """
    size_bytes = _size_of_file(fd)
    if size_bytes is None or not sys.stderr.isatty():
        yield lambda _records, _position: None
        return
    with bar(size_bytes, f"0 records {what}", counts="bytes") as show:
        yield lambda records, position: show(position, f"{records:,} records {what}")


@contextmanager
def bar(total: int | None, description: str, *, counts: Literal["bytes", "items"] | None = None) -> Iterator[Show]:
    """Shows on stderr, where that is a terminal, how much of `total` is done, while the body runs.

    `counts` says what the total is of, where the bar has to say it in numbers as well.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich import progress as parts
    from rich.console import Console

    columns: list[parts.ProgressColumn] = [parts.TextColumn("{task.description}"), parts.BarColumn()]
    if counts is not None:
        columns.append(parts.DownloadColumn(binary_units=True) if counts == "bytes" else parts.MofNCompleteColumn())
    columns.append(parts.TimeRemainingColumn())
    with parts.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(description, total=total)
        yield lambda done, words, total=None: shown.update(task, completed=done, description=words, total=total)


@contextmanager
def long_work(total: int, description: str, *, in_bytes: bool = True) -> Iterator[Show]:
    """A bar where stderr is a terminal, else a line on stderr every ten seconds: for jobs whose output is a log."""
    if sys.stderr.isatty():
        with bar(total, description, counts="bytes" if in_bytes else None) as show:
            yield show
        return
    clock = SystemClock()
    last_ms = clock.monotonic_ms()

    def line(done: float, words: str, total: int | None = total) -> None:
        nonlocal last_ms
        if clock.monotonic_ms() - last_ms >= LINE_MS:
            last_ms = clock.monotonic_ms()
            say(f"{done / max(1, total or 0):.0%}: {words}", file=sys.stderr, flush=True)

    yield line


def _size_of_file(fd: int) -> int | None:
    status = os.fstat(fd)
    return status.st_size if stat.S_ISREG(status.st_mode) else None

"""How far long work is: a bar on a terminal, and nothing anywhere else.

Owns the bar. Imports rich only where somebody sees it.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[int, int], None]
"""Takes the records done and the bytes of the input that they took."""
Show = Callable[[int, str], None]
"""Takes the bytes done, and what to say about them."""


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
def bar(size_bytes: int, description: str) -> Iterator[Show]:
    """Shows on stderr, which is a terminal, how many of `size_bytes` are done, while the body runs."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=size_bytes)
        yield lambda done_bytes, words: progress.update(task, completed=done_bytes, description=words)


def _size_of_file(fd: int) -> int | None:
    status = os.fstat(fd)
    return status.st_size if stat.S_ISREG(status.st_mode) else None

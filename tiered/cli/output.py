"""The output of commands: tables for people, JSON for programs, and quantities in words.

Owns the look of output. Tables are drawn on a terminal alone (rich is imported only there); into a pipe go plain
columns, so that `awk` and `diff` see nothing but text. Must never ask a broker or a person for anything, and never let
a name that a client or a broker chose move a terminal's cursor, end a line of a table or turn text around.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TextIO, TypeVar

from tiered.cli.failure import EXIT_FAILED, EXIT_OK

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FIRST_YEAR_MS, _LAST_YEAR_MS = -62_135_596_800_000, 253_402_300_800_000
"""Year 1, and the end of year 9999."""
_COLUMN_GAP = "  "
_WIDEST = 10_000
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal takes for a command, or for the other direction, and JSON leaves as it is."""


T = TypeVar("T")
Cell = str | int | None


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    print(json_text(value, indent=2))


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON with what would command a terminal written out."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Lines of text on stdout or `file`. Names in them were chosen by others: nothing but text reaches a terminal."""
    print("\n".join(map(on_one_line, text.split("\n"))), end=end, file=file, flush=flush)


def complain(arguments: argparse.Namespace, text: str) -> None:
    """The text on stderr, after the command's name."""
    say(f"{arguments.parser.prog}: {text}", file=sys.stderr)


def report(
    arguments: argparse.Namespace, noun: str, outcomes: Sequence[tuple[str, bool, str | None]], done: str
) -> int:
    """Says of each thing by its name whether it changed, or why not; the exit code is 1 when one of them failed."""
    if arguments.json:
        print_json([{noun: name, "changed": changed, "error": error} for name, changed, error in outcomes])
    for name, changed, error in outcomes:
        if error is not None:
            complain(arguments, f"{name}: {error}")
        elif not arguments.json:
            say(f"{name} {done}" if changed else f"{name} needs no change")
    return EXIT_FAILED if any(error is not None for _, _, error in outcomes) else EXIT_OK


def describe(arguments: argparse.Namespace, found: Sequence[T], show: Callable[[T], None]) -> None:
    """Several things in full: as JSON, or shown one by one with an empty line between."""
    if arguments.json:
        print_json(found)
        return
    for index, each in enumerate(found):
        say("" if index == 0 else "\n", end="")
        show(each)


def on_one_line(text: str) -> str:
    """The text with what is not printable written out, as in `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_table(titles: str, rows: Iterable[Sequence[Cell]]) -> None:
    """A table on stdout. `titles` are words, one for each column; `>` before one sets its column to the right.

    An empty cell is shown as `-`, so that every row has all its words.
    """
    # rich takes a dumb terminal for one of 80 columns, whatever it is told, and drops columns that do not fit.
    if sys.stdout.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}:
        _draw(titles, rows)
    else:
        print("\n".join(plain_lines(titles, rows)))


def plain_lines(titles: str, rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The table as lines of aligned text, titles first and no space at any line's end."""
    columns = titles.split()
    table = [[title.removeprefix(">") for title in columns], *map(_shown, rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    return [
        _COLUMN_GAP.join(
            cell.rjust(width) if title.startswith(">") else cell.ljust(width)
            for cell, width, title in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in table
    ]


def _shown(row: Sequence[Cell]) -> list[str]:
    return ["-" if cell is None else on_one_line(str(cell)) or "-" for cell in row]


def _draw(titles: str, rows: Iterable[Sequence[Cell]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(_COLUMN_GAP), 0, 0), header_style="bold cyan")
    for title in titles.split():
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, _shown(row)))  # A Text's brackets are brackets, not markup.
    # A row that is too long continues on the next line, as text does: cells that are cut or folded cannot be copied.
    Console(width=_WIDEST, soft_wrap=True).print(table)


def in_bytes(size_bytes: int | None) -> str:
    """`0 B`, `1.5 MiB`: three digits are enough to read. Unknown sizes (None, negative) give an empty text."""
    if size_bytes is None or size_bytes < 0:
        return ""
    size, unit = float(size_bytes), 0
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def in_utc(timestamp_ms: int | None) -> str:
    """`2026-01-31T23:59:59Z`; an empty text for what is unknown (None, -1), the number where no calendar has it."""
    if timestamp_ms is None or timestamp_ms == -1:
        return ""
    if not _FIRST_YEAR_MS <= timestamp_ms < _LAST_YEAR_MS:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""Tables into a pipe are plain text; quantities read well and lie nowhere."""

import contextlib
import json
import os
import pty
import subprocess
import sys

import pytest

from tiered.cli.failure import CommandFailed
from tiered.cli.main import ended
from tiered.cli.output import counted, in_bytes, in_utc, on_one_line, plain_lines, print_json, print_table, say

TITLES = "NAME >SIZE NOTE"


def test_plain_columns_are_aligned_and_no_line_ends_in_spaces() -> None:
    assert plain_lines(TITLES, [["a", "5", "x"], ["longer", "1000", "y"]]) == [
        "NAME    SIZE  NOTE",
        "a          5  x",
        "longer  1000  y",
    ]


def test_an_empty_cell_is_a_dash_so_that_words_keep_their_places() -> None:
    assert plain_lines(TITLES, [["a", "", ""]])[1].split() == ["a", "-", "-"]


def test_a_table_without_rows_still_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TITLES, [])
    assert capsys.readouterr().out == "NAME  SIZE  NOTE\n"


def test_json_keeps_what_is_not_ascii_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"topic": "grüße"})
    out = capsys.readouterr().out
    assert "grüße" in out
    assert json.loads(out) == {"topic": "grüße"}


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
        ((1 << 63) - 1, "8.0 EiB"),
        (-1, ""),
    ],
)
def test_sizes_are_shown_in_the_unit_that_fits(size_bytes: int, shown: str) -> None:
    assert in_bytes(size_bytes) == shown


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_769_903_999_123, "2026-01-31T23:59:59Z"),
        (-1, ""),
        (-2000, "1969-12-31T23:59:58Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
        (-62_135_596_800_001, "-62135596800001"),
        (253_402_300_799_999, "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, "253402300800000"),
    ],
)
def test_times_are_shown_in_utc_and_as_numbers_where_no_calendar_has_them(timestamp_ms: int, shown: str) -> None:
    assert in_utc(timestamp_ms) == shown


def test_one_is_singular() -> None:
    assert (counted(1, "record"), counted(2000, "record")) == ("1 record", "2,000 records")


def on_a_terminal(code: str, term: str = "xterm") -> str:
    """What `code` prints when its stdout is a terminal of 40 columns."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TITLES": "40", "TERM": term}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, env=environ)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO is how Linux says that the other side was closed.
        while chunk := os.read(ours, 4096):
            shown += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return shown.decode()


def test_a_terminal_gets_the_same_cells_whole_and_without_markup() -> None:
    cell = "x" * 100
    shown = on_a_terminal(
        f"from tiered.cli.output import print_table\nprint_table('A >B', [['[red]{cell}', '5'], ['', '']])"
    )
    assert "\x1b[" in shown.splitlines()[0]
    assert [line.split() for line in shown.splitlines()[1:]] == [[f"[red]{cell}", "5"], ["-", "-"]]


def test_a_dumb_terminal_gets_all_columns_too() -> None:
    cell = "x" * 100
    shown = on_a_terminal(
        f"from tiered.cli.output import print_table\nprint_table('A >B', [['{cell}', '5']])",
        term="dumb",
    )
    assert [line.split() for line in shown.splitlines()] == [["A", "B"], [cell, "5"]]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eg\x7f\r"


def _is_harmless(text: str) -> bool:
    return all(each == "\n" or each.isprintable() for each in text)


def test_no_name_in_a_table_or_message_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TITLES, [[HOSTILE, "5", "x"]])
    say(f"group {HOSTILE} deleted")

    def fails() -> int:
        raise CommandFailed(f"the broker said {HOSTILE}")

    assert ended("tiered topics list", fails) == 1
    said = capsys.readouterr()
    assert _is_harmless(said.out)
    assert _is_harmless(said.err)
    assert said.out.count("\\x1b]0;owned") == 2


def test_json_commands_no_terminal_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"group": HOSTILE, "topic": "bücher"})
    text = capsys.readouterr().out
    assert _is_harmless(text)
    assert "bücher" in text
    assert json.loads(text)["group"] == HOSTILE


def test_a_line_feed_in_a_name_makes_no_row_of_its_own() -> None:
    assert len(plain_lines(TITLES, [["a\nprod", "5", "x"]])) == 2
    assert on_one_line("a\nprod") == "a\\nprod"

"""A log record is one line of text, or one JSON object a line, with its failure."""

import json
import logging
import sys

import pytest

from tiered.cli.serve import JsonFormatter, TextFormatter


@pytest.fixture
def record() -> logging.LogRecord:
    made = logging.LogRecord("tiered.x", logging.WARNING, __file__, 1, "lost %s", ("grüße",), None)
    made.created = 1_769_903_999.123
    return made


@pytest.fixture
def failure(record: logging.LogRecord) -> logging.LogRecord:
    try:
        raise ValueError("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    return record


def test_text_is_a_time_a_level_a_place_and_a_message(record: logging.LogRecord) -> None:
    assert TextFormatter().format(record) == "2026-01-31T23:59:59.123Z WARNING tiered.x: lost grüße"


def test_no_name_makes_a_line_of_its_own(record: logging.LogRecord) -> None:
    record.args = ("x\r\n2026-01-31T23:59:59.123Z INFO tiered.x: all is well\x1b[2J\u2028\ud800",)
    assert (
        TextFormatter()
        .format(record)
        .endswith(r"lost x\r\n2026-01-31T23:59:59.123Z INFO tiered.x: all is well\x1b[2J\u2028\ud800")
    )


def test_json_is_one_object_on_one_line(record: logging.LogRecord) -> None:
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2026-01-31T23:59:59.123Z", "level": "warning", "logger": "tiered.x", "message": "lost grüße",
    }  # fmt: skip


def test_no_name_commands_a_terminal(record: logging.LogRecord, failure: logging.LogRecord) -> None:
    hostile = "\x9b2J\u202e\x1b[2J"
    record.args = (hostile,)
    failure.exc_info = (ValueError, ValueError(hostile), None)
    line = JsonFormatter().format(failure)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"lost {hostile}"
    assert TextFormatter().format(failure).replace("\n", "").isprintable()


def test_a_traceback_follows_in_text_and_stays_on_the_line_in_json(failure: logging.LogRecord) -> None:
    assert TextFormatter().format(failure).endswith("\nValueError: why")
    line = JsonFormatter().format(failure)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: why")

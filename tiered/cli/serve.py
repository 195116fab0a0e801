"""`tiered serve`: reads its options, sets up logging, runs the broker.

Owns the format of a log line, text for people or JSON for machines, both on stderr. The code that logs a line decides
its text and its level.
"""

import argparse
import gc
import logging
import os
import sys
from datetime import UTC, datetime

from tiered.cli.output import json_text, on_one_line
from tiered.config import ServeOptions, load_serve_options
from tiered.config.broker_changes import start_warnings, without_effect

LOUDEST_OF_OTHERS = logging.WARNING
log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Runs a broker until it is told to stop. Raises InvalidConfig that names the option that is wrong."""
    # Modules and objects made from here on stay: a search for garbage in them would take a tenth of the start. The
    # broker turns the collector on again once it serves.
    gc.disable()
    options = load_serve_options(arguments, os.environ)
    set_up_logging(options.log_format)
    _say_what_does_nothing(options)
    from tiered.server.serve import run as run_broker

    gc.freeze()  # The one collection at the end of the start need not look at modules either.
    return run_broker(options)


def _say_what_does_nothing(options: ServeOptions) -> None:
    static = options.settings.static
    for warning in start_warnings(static, (each.name for each in options.listeners)):
        log.warning("%s", warning)
    if names := without_effect(static):
        log.info("accepted from Kafka, without effect here: %s", ", ".join(names))


def set_up_logging(log_format: str) -> None:
    """Sends log records to stderr: ours from INFO on, the libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=LOUDEST_OF_OTHERS, handlers=[handler], force=True)
    logging.getLogger("tiered").setLevel(logging.INFO)
    # A record's thread and process names are shown by neither format; gathering them costs on each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.raiseExceptions = False  # The reader of stderr may go away; the broker stays.


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`2026-01-31T23:59:59.123Z INFO tiered.broker.broker: message`; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time(record)} {record.levelname} {record.name}: {on_one_line(record.getMessage())}"
        if record.exc_info:
            text += "\n" + "\n".join(map(on_one_line, self.formatException(record.exc_info).split("\n")))
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message` and, for failures, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json_text(fields)

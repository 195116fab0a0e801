"""What a log line looks like: text for people, JSON for machines, both on stderr.

Owns the format alone. Which things are logged, and how loud, is decided where they happen.
"""

import logging
import sys
from datetime import UTC, datetime

from tiered.cli.output import json_text, on_one_line

LOUDEST_OF_OTHERS = logging.WARNING


def set_up_logging(log_format: str) -> None:
    """Sends log records to stderr: ours from INFO on, the libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=LOUDEST_OF_OTHERS, handlers=[handler], force=True)
    logging.getLogger("tiered").setLevel(logging.INFO)
    # A record's thread and process names are shown by neither format; gathering them costs on each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.raiseExceptions = False  # Whoever read stderr may go away; the broker stays.


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

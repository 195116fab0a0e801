"""`tiered disk-report DIR`: what is on a stopped broker's disk, as a file for `tiered restore --disk`.

Owns the file's way out, and the way back in, where a folder will do as well. `broker.host.disk_inventory` opens the
logs.
"""

import argparse
import sys
from pathlib import Path

from tiered.broker.host.disk_inventory import report_of
from tiered.cli.failure import EXIT_FAILED, EXIT_OK, CommandFailed, UsageError
from tiered.cli.output import on_one_line, say
from tiered.cli.progress import bar
from tiered.errors import CorruptObject
from tiered.formats.checkpoint_bytes import MAX_CHECKPOINT_BYTES
from tiered.formats.disk_report import DiskReport, decode_disk_report, encode_disk_report
from tiered.runtime import SystemClock


def run(arguments: argparse.Namespace) -> int:
    """Writes the report to standard output; EXIT_FAILED where a log cannot be opened."""
    report = _of_folder(Path(arguments.data))
    sys.stdout.write(encode_disk_report(report).decode("ascii") + "\n")
    for fault in report.faults:
        say(f"cannot be opened: {on_one_line(fault)}", file=sys.stderr)
    return EXIT_FAILED if report.faults else EXIT_OK


def read_disk(path: str) -> DiskReport:
    """The report of a data folder, or in a file. Raises UsageError, CommandFailed, InvalidConfig, AlreadyRunning."""
    if Path(path).is_dir():
        return _of_folder(Path(path))
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_CHECKPOINT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--disk {path} cannot be read: {error.strerror}") from error
    try:
        return decode_disk_report(data)
    except CorruptObject as error:
        raise CommandFailed(
            f"--disk {path} is no report of a disk: {error}; make it anew with `tiered disk-report`"
        ) from error


def _of_folder(folder: Path) -> DiskReport:
    with bar(None, "opening logs", counts="items") as show:
        return report_of(
            folder,
            now_ms=SystemClock().now_ms(),
            report=lambda done, total: show(done, "opening logs", total),
        )

"""The marker file: which registration a data folder's last process had, and whether it flushed all.

Owns the value and how it is read. `control.registration` writes it, and says when.
"""

import json
from dataclasses import dataclass

from tiered.hot.file_system import FileSystem, read_whole

MARKER_FILE = "registration.json"
"""`{"version": 1, "broker_epoch": number, "boot_id": text, "flushed": boolean}`"""
MAX_MARKER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The last process of this folder's record of its log."""

    broker_epoch: int
    boot_id: str
    flushed: bool

    def clean_epoch(self, boot_id: str) -> int | None:
        """The registration since which nothing was lost; None when something may have been."""
        return self.broker_epoch if self.flushed or self.boot_id == boot_id else None


def read_marker(files: FileSystem, path: str) -> Marker | None:
    """None where there is none yet, or it is damaged: nothing can be relied on. Blocking; raises OSError."""
    data = read_whole(files, path, max_bytes=MAX_MARKER_BYTES)
    try:
        fields = json.loads(data or b"{}")
        return Marker(
            broker_epoch=int(fields["broker_epoch"]), boot_id=str(fields["boot_id"]), flushed=fields["flushed"] is True
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

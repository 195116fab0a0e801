"""Wall clocks that jump, one for each broker.

Owns the file that says how far a broker's clock is off; `jumping_clock/sitecustomize.py` reads it in the broker.
"""

import mmap
import os
import struct
from pathlib import Path

FOLDER = Path(__file__).parent / "jumping_clock"
_OFFSET = struct.Struct("=d")


class ClockFile:
    """One broker's clock, right at first."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(_OFFSET.pack(0.0))
        self._path = path
        with path.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), _OFFSET.size)

    def environ(self) -> dict[str, str]:
        """What the broker's process must be started with."""
        folders = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(folders), "TIERED_TEST_CLOCK": str(self._path)}

    def set_offset_s(self, offset_s: float) -> None:
        """The clock jumps to so many seconds off the truth, at once."""
        _OFFSET.pack_into(self._offset, 0, offset_s)

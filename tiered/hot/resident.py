"""Whether a slice's bytes are in the page cache, and how they get there.

Owns the probe and the warming read, so that `sendfile` on the event loop never waits for the disk. Must
never answer "resident" on a guess about the file system: where it cannot probe, a thread reads.
"""

import os

from tiered.file_slice import FileSlice

PROBE_BYTES = 256 * 1024
"""Distance of the probes, 2 µs each. Linux reads ahead and drops pages in runs of about this size."""

_READ_BYTES = 256 * 1024


def is_resident(file_slice: FileSlice) -> bool:
    """True when the probed pages of the slice (every 256 KiB, and the last) can be read without waiting.

    Never blocks. A hint, not a promise: pages may be reclaimed at any moment, or be missing between probes.
    """
    if file_slice.length == 0:
        return True
    descriptor = file_slice.fileno()
    last = file_slice.position + file_slice.length - 1
    probe = [bytearray(1)]
    try:
        for position in range(file_slice.position, last, PROBE_BYTES):
            os.preadv(descriptor, probe, position, os.RWF_NOWAIT)
        os.preadv(descriptor, probe, last, os.RWF_NOWAIT)
    except OSError:  # EAGAIN: not in memory. Anything else: this file system cannot tell.
        return False
    return True


def make_resident(file_slice: FileSlice) -> None:
    """Reads the slice once, so that its pages are in the cache; call it in a thread.

    Raises OSError when the disk fails. A file that has become shorter is read to its end.
    """
    descriptor = file_slice.fileno()
    buffer = [bytearray(min(_READ_BYTES, file_slice.length))]
    position, end = file_slice.position, file_slice.position + file_slice.length
    while position < end:
        count = os.preadv(descriptor, buffer, position)
        if count == 0:
            return
        position += count

"""The local object store as an outsider sees it: which objects are there, and whether each is whole."""

import hashlib
import os
from pathlib import Path

from tiered.formats import record_batch
from tiered.formats.segment_object import read_tail


def files_under(root: Path) -> list[Path]:
    """Every file below `root`; folders that are removed during the walk are passed over (`rglob` would raise)."""
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]


def objects(root: Path) -> set[str]:
    """The keys of all segment objects."""
    return {path.relative_to(root).as_posix() for path in files_under(root / "segments") if path.suffix == ".seg"}


def verify_store(root: Path, keys: set[str]) -> None:
    """Every object is whole: footer, chunk hashes, CRCs, contiguous offsets."""
    for key in keys:
        data = (root / key).read_bytes()
        tail = read_tail(data, len(data))
        expected = tail.chunks[0].first_offset
        for chunk in tail.chunks:
            piece = data[chunk.position : chunk.position + chunk.length]
            assert hashlib.sha256(piece).digest() == chunk.sha256, f"{key}: a chunk's hash is wrong"
            for position, header in record_batch.exact_batches(piece, 0, len(piece)):
                record_batch.verify_crc(piece, position, header.size_bytes)
                assert header.base_offset == expected, f"{key}: a gap at {expected}"
                expected = header.end_offset
        assert expected == tail.footer.end_offset

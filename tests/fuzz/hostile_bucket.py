"""A small bucket, and what somebody who may write to it could do to its objects.

Owns the damage, drawn from one seed: bytes, and values behind right checksums, which random bytes never reach. Must
never decide what a reader should say.
"""

import copy
import hashlib
import json
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastcrc import crc32

from tests.unit.cold.stored_segments import NO_ROOT, TOPIC_ID, store_segment
from tests.unit.cold.verified_store import CLUSTER_ID, RECORDS, make_store
from tiered.cold.bucket import group_checkpoints
from tiered.cold.local import LocalStore
from tiered.errors import TieredError
from tiered.formats import segment_footer
from tiered.formats.checkpoint_bytes import canonical
from tiered.formats.group_checkpoint import GroupCheckpoint, GroupEntry, StoredOffset
from tiered.formats.producer_snapshot import encode_producers

NUMBERS = [-1, 0, 1, 2, 239, 240, 241, 719, 720, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**40]
TEXTS = [
    "",
    "x",
    "x" * 300,
    "\ud800",
    "é\x00",
    "../../../etc/passwd",
    "segments/../x",
    "0" * 64,
    "f" * 64,
    str(TOPIC_ID),
]
OTHERS: list[Any] = [None, True, False, 1e308, 0.5, [], {}, [[]], [{}], {"": ""}, "DEEP"]
DEPTH = 5_000
FOOTER_FIELDS = ["partition", "base_offset", "end_offset", "min_timestamp_ms", "max_timestamp_ms", "record_count"]
FOOTER_FIELDS += ["batch_count", "log_bytes", "format_version", "cluster_id", "topic", "sections"]


class BucketFuzz:
    """Damages copies of one bucket."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.whole = folder / "whole"
        (folder / "logs").mkdir(parents=True)
        made = make_store(self.whole, folder / "logs", segments=0)
        previous = NO_ROOT
        for number in range(4):
            stored = store_segment(
                made.store,
                folder / "logs",
                range(1_000, 1_000 + RECORDS),
                base_offset=number * RECORDS,
                previous_root_sha256=previous,
                producer_snapshot=encode_producers(()),
            )
            previous = stored.committed.root_sha256
            made.segments.append(stored)
        made.write_head(page_entries=2)
        offset = StoredOffset(
            topic_id=TOPIC_ID, partition=3, offset=17, leader_epoch=1, metadata="", committed_at_ms=1_700_000_000_000
        )
        entry = GroupEntry(
            group_id="readers", kind="consumer", protocol_type="consumer", generation=3, offsets=(offset,)
        )
        groups = GroupCheckpoint(cluster_id=CLUSTER_ID, slot=4, slot_count=50, slot_epoch=1, groups=(entry,))
        group_checkpoints.write_group_checkpoint(LocalStore(self.whole), groups)

    def damaged(self, target: Path) -> list[str]:
        """Copies the bucket to `target` with one object altered, or a few; what was altered."""
        shutil.copytree(self.whole, target)
        files = sorted(path for path in target.rglob("*") if path.is_file() and path.suffix in (".json", ".seg"))
        heads = [path for path in files if path.suffix == ".json"]
        altered = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 3])):
            path = self.chance.choice(heads if self.chance.random() < 0.6 else files)
            if not path.exists():
                continue
            altered.append(path.relative_to(target).as_posix())
            self._alter(path, self.chance.choice(files))
        return altered

    def _alter(self, path: Path, other: Path) -> None:
        data = path.read_bytes()
        match self.chance.randrange(10):
            case 0:
                path.write_bytes(self._bytes(data))
            case 1:
                path.write_bytes(other.read_bytes() if other.exists() else b"")
            case 2:
                path.unlink()
            case _ if path.suffix == ".seg":
                path.write_bytes(self._segment(data))
            case _:
                path.write_bytes(self._json(data))

    def _bytes(self, data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(self.chance.choice([1, 1, 3, 20])):
            if not found:
                break
            at = self.chance.randrange(len(found))
            match self.chance.randrange(4):
                case 0:
                    found[at] ^= 1 << self.chance.randrange(8)
                case 1:
                    found[at : at + 8] = self.chance.randbytes(8)
                case 2:
                    del found[at:]
                case 3:
                    found[at:at] = found[at : at + 100]
        return bytes(found)

    # Checkpoints

    def _json(self, data: bytes) -> bytes:
        try:
            members = json.loads(data)
            name = members["format"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._bytes(data)
        for _ in range(self.chance.choice([1, 1, 2, 4])):
            self._member(members)
        if self.chance.random() < 0.1:
            return json.dumps(members).encode("ascii").replace(b'"DEEP"', b"[" * DEPTH + b"]" * DEPTH)
        members.pop("sha256", None)
        try:
            members["format"] = str(members.get("format", name))
            return canonical({**members, "sha256": hashlib.sha256(canonical(members)).hexdigest()})
        except (ValueError, RecursionError):
            return json.dumps(members).encode("ascii")

    def _member(self, members: dict[str, Any]) -> None:
        """Changes one value somewhere inside."""
        holder: Any = members
        while True:
            keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                return
            key = self.chance.choice(keys)
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or self.chance.random() < 0.15:
                break
            holder = inner
        match self.chance.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(inner))
            case 2 if isinstance(holder, list):
                self.chance.shuffle(holder)
            case 3:
                holder[key] = copy.deepcopy(self.chance.choice(OTHERS))
            case 4 if isinstance(inner, list):
                holder[key] = copy.deepcopy(inner * 50)
            case _:
                holder[key] = self._like(inner)

    def _like(self, value: Any) -> Any:
        if type(value) is int and self.chance.random() < 0.9:
            return self.chance.choice([*NUMBERS, value + 1, value - 1, value * 2])
        if type(value) is str and self.chance.random() < 0.5:
            return value[:-1] + self.chance.choice("0aZ/\x00")
        return copy.deepcopy(self.chance.choice([*TEXTS, *NUMBERS, *OTHERS]))

    # Segments

    def _segment(self, data: bytes) -> bytes:
        """Changes the tail and puts its checksums right again."""
        found = bytearray(data)
        try:
            footer = segment_footer.read_footer(data, len(data))
        except TieredError:  # It was damaged already.
            return self._bytes(data)
        if not isinstance(footer, segment_footer.SegmentFooter):
            return self._bytes(data)
        sections = list(footer.sections)
        if sections and self.chance.random() < 0.6:
            number = self.chance.randrange(len(sections))
            each = sections[number]
            content = self._bytes(bytes(found[each.position : each.position + each.length]))[: each.length]
            content += bytes(each.length - len(content))
            found[each.position : each.position + each.length] = content
            sections[number] = replace(each, crc=crc32.iscsi(content))
        changes: dict[str, Any] = {"sections": tuple(sections)}
        for _ in range(self.chance.choice([0, 0, 1, 2])):
            name = self.chance.choice(FOOTER_FIELDS)
            if name == "sections" and sections:
                each = self.chance.choice(sections)
                wrong = replace(each, position=self._number(), length=self._number(), kind=self.chance.randrange(7))
                changes[name] = (*sections, wrong)
            elif name in ("cluster_id", "topic"):
                changes[name] = self.chance.choice(["", "x" * 300, "../x", "orders"])
            elif name != "sections":
                changes[name] = self._number()
        try:
            end = segment_footer.encode_end(replace(footer, **changes))
        except (struct.error, UnicodeEncodeError):
            return self._bytes(data)
        start = len(data) - len(segment_footer.encode_end(footer))
        return bytes(found[:start]) + end

    def _number(self) -> int:
        return self.chance.choice(NUMBERS)

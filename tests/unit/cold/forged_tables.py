"""Objects whose chunk table says something else of the same chunks: which the catalogue's roots allow."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from tiered.formats.chunk_table import ChunkRow, ChunkTable
from tiered.formats.segment_object import build_tail, read_tail

Change = Callable[[Sequence[ChunkRow]], Sequence[ChunkRow]]


def forged(data: bytes, change: Change, **said: object) -> bytes:
    """The object with the rows that `change` makes of its table's, and what else it says of itself; each checksum of
    the tail is right, and the root is the same."""
    tail = read_tail(data, len(data))
    footer = tail.footer
    of_footer = {each.name: getattr(footer, each.name) for each in fields(ChunkTable) if each.name != "chunks"}
    of_table = {name: said.pop(name) for name in list(said) if name in of_footer}
    names: dict[str, object] = {
        "cluster_id": footer.cluster_id,
        "topic_id": footer.topic_id,
        "topic": footer.topic,
        "partition": footer.partition,
        "previous_root_sha256": footer.previous_root_sha256,
    }
    return data[: footer.log_bytes] + build_tail(
        ChunkTable(chunks=tuple(change(tail.chunks)), **(of_footer | of_table)),
        leader_epochs=tail.leader_epochs,
        aborted=tail.aborted,
        producer_snapshot=tail.producer_snapshot,
        **(names | said),  # type: ignore[arg-type]
    )


def boundary_moved(rows: Sequence[ChunkRow], *, number: int, offsets: int) -> Sequence[ChunkRow]:
    """The chunk of that number ends so many offsets later than it does, and the next one begins there."""
    changed = list(rows)
    changed[number] = replace(rows[number], last_offset=rows[number].last_offset + offsets)
    changed[number + 1] = replace(rows[number + 1], first_offset=rows[number + 1].first_offset + offsets)
    return changed


def gap_made(rows: Sequence[ChunkRow], *, number: int, offsets: int) -> Sequence[ChunkRow]:
    """The chunk of that number ends so many offsets earlier than it does."""
    changed = list(rows)
    changed[number] = replace(rows[number], last_offset=rows[number].last_offset - offsets)
    return changed

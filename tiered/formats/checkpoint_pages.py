"""Which sealed pages of a partition's head go on into the next one.

Owns that decision. A page never changes, and the rows in it may: other objects are put in their places, one for each or
one for many. Pure:
whoever has the store brings the one page that has to be looked into. Must never take over a page that names another
object than the metadata store does.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tiered.formats.checkpoint import (
    CheckpointPage,
    CommittedSegment,
    PageRef,
    PartitionCheckpoint,
    page_ref,
)

ReadPage = Callable[[PageRef], Sequence[CommittedSegment]]
"""What is in a page; nothing where that cannot be had."""


def with_pages_of(
    previous: PartitionCheckpoint | None,
    checkpoint: PartitionCheckpoint,
    read_page: ReadPage = lambda _reference: (),
    *,
    known: Collection[PageRef] = (),
) -> PartitionCheckpoint:
    """`checkpoint` with the sealed pages of the head before it, and without the segments that these hold.

    So a head made from all committed rows does not seal them anew each time. Pages below the log start are
    left out, and all from the first on that names other objects than the rows do. Where the pages do not meet the
    segments that are given, none is taken over. `read_page` is asked for one page at the most: that across which the
    log starts. `known` are pages that this writer made of the rows or compared with them; any other may have come into
    the bucket by somebody else's hand.
    """
    if previous is None or (previous.topic_id, previous.partition) != (checkpoint.topic_id, checkpoint.partition):
        return checkpoint
    if checkpoint.pages:
        return checkpoint
    pages: list[PageRef] = []
    for page in previous.pages:
        if page.end_offset <= checkpoint.log_start_offset:
            continue
        if not _is_right(page, checkpoint, read_page, is_known=page in known):
            break
        pages.append(page)
    if not pages:
        return checkpoint
    covered = pages[-1].end_offset
    newer = tuple(segment for segment in checkpoint.segments if segment.base_offset >= covered)
    meets = newer[0].base_offset == covered if newer else checkpoint.cold_end_offset == covered
    return replace(checkpoint, pages=tuple(pages), segments=newer) if meets else checkpoint


def _is_right(page: PageRef, checkpoint: PartitionCheckpoint, read_page: ReadPage, *, is_known: bool) -> bool:
    segments = checkpoint.segments
    first = bisect_left(segments, page.first_base_offset, key=lambda each: each.base_offset)
    end = bisect_left(segments, page.end_offset, key=lambda each: each.base_offset)
    rows = segments[first:end]
    # What was joined to a row that begins before the page would be missing here.
    begins = bool(rows) and rows[0].base_offset <= max(page.first_base_offset, checkpoint.log_start_offset)
    if is_known and begins and all(row.uploaded_root_sha256 is None for row in rows):
        return True  # A segment that was replaced once is never again the one that was uploaded.
    if len(rows) == page.count:
        return (
            page_ref(CheckpointPage(topic_id=checkpoint.topic_id, partition=checkpoint.partition, segments=rows))
            == page
        )
    start_offset = checkpoint.log_start_offset
    return (
        bool(rows)
        and page.first_base_offset < start_offset
        and rows == tuple(each for each in read_page(page) if each.end_offset > start_offset)
    )

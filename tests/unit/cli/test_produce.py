"""Lines arrive whole however the bytes are cut, and never after the end."""

import asyncio
import gc
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tiered.cli.failure import CommandFailed
from tiered.cli.records.produce import CHUNK_BYTES, LineReader


async def lines_of(chunks: Iterable[bytes]) -> list[bytes]:
    """What a reader makes of a pipe into which each chunk is written once the one before it was taken."""
    read_end, write_end = os.pipe()
    reader = LineReader(read_end)
    reader.start()
    found: list[bytes] = []
    try:
        for chunk in chunks:
            os.write(write_end, chunk)
            lines = await reader.next(5000)
            assert lines is not None
            found += lines
        os.close(write_end)
        while (lines := await reader.next(None)) is not None:
            found += lines
        assert await reader.next(None) is None
    finally:
        os.close(read_end)
    return found


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([], []),
        ([b"\n"], [b""]),
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a", b"b", b"c\nd\n", b"e"], [b"abc", b"d", b"e"]),
        ([b"a\n", b"\n\nb\r\n"], [b"a", b"", b"", b"b\r"]),
    ],
)
async def test_lines_are_whole_however_the_bytes_are_cut(chunks: list[bytes], expected: list[bytes]) -> None:
    assert await lines_of(chunks) == expected


async def test_each_byte_by_itself_makes_the_same_lines() -> None:
    text = b"first\n\nthird line\nno end"
    assert await lines_of([bytes([byte]) for byte in text]) == text.split(b"\n")


async def test_a_file_longer_than_what_is_read_ahead_comes_whole(tmp_path: Path) -> None:
    lines = [b"%d" % number + b"x" * 100 for number in range(20 * CHUNK_BYTES // 100)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    found: list[bytes] = []
    with (tmp_path / "lines").open("rb") as file:
        reader = LineReader(file.fileno())
        reader.start()
        while (more := await reader.next(None)) is not None:
            found += more
    assert found == lines


async def test_a_wait_without_input_gives_no_lines_and_loses_none() -> None:
    read_end, write_end = os.pipe()
    reader = LineReader(read_end)
    reader.start()
    assert await reader.next(1) == []
    os.write(write_end, b"late\n")
    assert await reader.next(5000) == [b"late"]
    os.close(write_end)
    assert await reader.next(None) is None
    os.close(read_end)


async def test_what_cannot_be_read_is_a_failure_that_says_so(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    reader = LineReader(folder)
    reader.start()
    with pytest.raises(CommandFailed, match="cannot read the input: Is a directory"):
        await reader.next(None)
    os.close(folder)


def test_lines_that_come_after_the_loop_has_ended_go_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    gc.collect()
    recwarn.clear()  # What earlier tests left behind.
    read_end, write_end = os.pipe()

    async def begin() -> None:
        LineReader(read_end).start()

    asyncio.run(begin())
    os.write(write_end, b"late\n")
    for thread in threading.enumerate():
        if thread.name == "lines":
            thread.join(10)
    gc.collect()
    os.close(read_end)
    os.close(write_end)
    assert [str(each.message) for each in recwarn] == []

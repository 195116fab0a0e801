"""A folded body comes out as it went in, however its pieces are cut, and no larger than a piece at a time."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidRequest
from tiered.server.http.messages.body import PIECE_BYTES, _unfolded


def _raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip twice": ("gzip", lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its wrapping": ("deflate", _raw),
}


def unfolded(coding: str, pieces: Sequence[bytes]) -> list[bytes]:
    async def come() -> AsyncIterator[bytes]:
        for each in pieces:
            yield each

    async def run() -> list[bytes]:
        return [each async for each in _unfolded(come(), coding)]

    return asyncio.run(run())


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("form", FORMS)
@given(data=st.binary(max_size=200) | st.builds(bytes, st.integers(0, 5 * PIECE_BYTES)), size=st.integers(min_value=1))
def test_a_body_comes_out_as_it_went_in(form: str, data: bytes, size: int) -> None:
    coding, fold = FORMS[form]
    pieces = unfolded(coding, cut(fold(data), size))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize("count", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_what_was_flushed_comes_out_before_anything_else_comes(count: int) -> None:
    packer = zlib.compressobj(wbits=31)
    flushed = packer.compress(bytes(count)) + packer.flush(zlib.Z_SYNC_FLUSH)
    came: list[bytes] = []

    async def run() -> None:
        ended = asyncio.Event()

        async def come() -> AsyncIterator[bytes]:
            yield flushed
            await ended.wait()

        async for piece in _unfolded(come(), "gzip"):
            came.append(piece)
            if sum(map(len, came)) == count:
                break

    asyncio.run(asyncio.wait_for(run(), 10))
    assert b"".join(came) == bytes(count)


@pytest.mark.parametrize("form", FORMS)
def test_a_body_that_ends_early_is_refused(form: str) -> None:
    coding, fold = FORMS[form]
    with pytest.raises(InvalidRequest, match="ends within its"):
        unfolded(coding, [fold(b"some thing that is longer than nothing")[:-3]])


def test_what_is_not_what_it_says_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not the gzip"):
        unfolded("gzip", [b"this is none"])
    with pytest.raises(InvalidRequest, match="goes on after the end of its deflate"):
        unfolded("deflate", [zlib.compress(b"one"), b"two"])
    with pytest.raises(InvalidRequest, match="is not the gzip"):
        unfolded("gzip", [gzip.compress(b"one") + b"two"])

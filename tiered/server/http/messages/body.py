"""The body of a request, as it was before its sender folded it together (Content-Encoding).

Owns the unfolding. aiohttp would unfold a body that nobody reads too, up to seconds of the event loop for one request:
here it happens for who reads alone, a piece at a time, with everybody else's turn between two pieces. A client chooses
how late its body comes, so login and rights are looked up once more when a whole body is there. Must never hold more
than a piece of what it unfolds.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from tiered.errors import InvalidRequest

MAX_BODY_BYTES = 1 << 20
PIECE_BYTES = 16 << 10
_GZIP, _DEFLATE = "gzip", "deflate"
_CODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _DEFLATE}
_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class BodyGuard:
    """The check of a request's login and rights; `check` raises the refusal."""

    check: Callable[[web.Request], None]


BODY_GUARD: web.AppKey[BodyGuard] = web.AppKey("body_guard", BodyGuard)
"""Absent in an application without rights."""


class _Decompressor(Protocol):
    """The shape of zlib's decompressors, whose type has no public name."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def body_of(request: web.Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The whole body; 413 when it is larger. The route's deadline bounds how slowly it may come.

    Raises AuthenticationFailed, NotAuthorized where the client may not do any more what it might when the head came.
    """
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    # The count is of decompressed bytes, so that a small body cannot grow large here.
    async for some in pieces_of(request):
        body += some
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    check_permission(request)
    return bytes(body)


def check_permission(request: web.Request) -> None:
    """Returns when the client may still do what it asks for. Raises AuthenticationFailed, NotAuthorized."""
    guard = request.app.get(BODY_GUARD)
    if guard is not None:
        guard.check(request)


def pieces_of(request: web.Request) -> AsyncIterator[bytes]:
    """The body's bytes as they come; the pieces of one that was folded have 16 KiB at the most.

    Raises 415 at once for a Content-Encoding other than gzip and deflate. The iterator raises InvalidRequest where the
    bytes are not what it says.
    """
    name = ", ".join(request.headers.getall("Content-Encoding", ["identity"])).strip().lower()
    if name == "identity":
        return _in_turns(request.content.iter_any())
    if name not in _CODINGS:
        raise web.HTTPUnsupportedMediaType(
            reason=f"Content-Encoding {name[:_MOST_SHOWN]!a} is not read here: send gzip, deflate or none"
        )
    return _unfolded(request.content.iter_any(), _CODINGS[name])


async def _in_turns(come: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A thousand chunks may be there without a wait, and behind them the next thousand."""
    async for piece in come:
        yield piece
        await asyncio.sleep(0)


async def _unfolded(folded: AsyncIterator[bytes], coding: str) -> AsyncIterator[bytes]:
    decompressor: _Decompressor | None = None
    async for come in folded:
        data, has_more = come, True
        while has_more:
            if decompressor is None or (decompressor.eof and coding == _GZIP):
                # Several gzip files in a row are one (RFC 1952, 2.2).
                decompressor = zlib.decompressobj(_window_bits(coding, data))
            elif decompressor.eof:
                raise InvalidRequest(f"the body goes on after the end of its {coding}: send one stream")
            try:
                piece = decompressor.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise InvalidRequest(f"the body is not the {coding} that its Content-Encoding says: {error}") from None
            data = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            # A piece that is full may have its rest within zlib, whose input is used up.
            has_more = bool(data) or (len(piece) == PIECE_BYTES and not decompressor.eof)
            if piece:
                yield piece
            # A thousand pieces, or files without any, may be there without a wait.
            await asyncio.sleep(0)
    if decompressor is not None and not decompressor.eof:
        raise InvalidRequest(f"the body ends within its {coding}: send the whole of it")


def _window_bits(coding: str, data: bytes) -> int:
    """zlib's, for what begins so."""
    if coding == _GZIP:
        return 16 + zlib.MAX_WBITS
    # Some send deflate without its wrapping (RFC 9110, 8.4.1.2); the first byte says so.
    return zlib.MAX_WBITS if data[0] & 0xF == zlib.DEFLATED else -zlib.MAX_WBITS


def _too_large(max_bytes: int) -> web.HTTPException:
    return web.HTTPRequestEntityTooLarge(
        max_size=max_bytes, actual_size=max_bytes + 1, reason=f"the body is larger than {max_bytes} bytes: send less"
    )

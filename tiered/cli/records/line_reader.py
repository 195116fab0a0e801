"""Lines from a file or a pipe, as they come, without ever blocking the event loop.

Owns one thread that reads. Memory is bounded: a few chunks ahead of whoever takes the lines.
"""

import asyncio
import concurrent.futures
import os
import threading

from tiered.cli.failure import CommandFailed

CHUNK_BYTES = 1 << 18
CHUNKS_AHEAD = 4
MAX_LINE_BYTES = 64 << 20


class LineReader:
    """Reads the file descriptor `fd`; `next` gives the lines that came since."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(CHUNKS_AHEAD)
        self._partial = bytearray()
        self._ended = False
        self.position = 0
        """Bytes that were taken so far."""

    def start(self) -> None:
        """Begins to read. The thread is a daemon: a read from a terminal may never end."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="lines", daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        # os.read and not a file object: a daemon thread must hold no buffer's lock when the interpreter ends.
        while True:
            chunk: bytes | OSError
            try:
                chunk = os.read(self._fd, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            put = self._chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(put, loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):
                put.close()
                return  # The loop has ended: nobody takes lines any more.
            if not chunk or isinstance(chunk, OSError):
                return

    async def next(self, wait_ms: float | None) -> list[bytes] | None:
        """The next lines, without their ends; none when `wait_ms` passed without one; None at the end of the input.

        Raises CommandFailed when the input cannot be read, or at a line of more than `MAX_LINE_BYTES`.
        """
        if self._ended:
            return None
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000.0):
                chunk = await self._chunks.get()
        except TimeoutError:
            return []
        if isinstance(chunk, OSError):
            raise CommandFailed(f"cannot read the input: {chunk.strerror}")
        if not chunk:
            self._ended = True
            return [bytes(self._partial)] if self._partial else None
        self.position += len(chunk)
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._partial += chunk
            if len(self._partial) > MAX_LINE_BYTES:
                raise CommandFailed(f"a line of the input has more than {MAX_LINE_BYTES >> 20} MiB")
            return []
        lines = head.split(b"\n")
        if self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        self._partial += rest
        return lines

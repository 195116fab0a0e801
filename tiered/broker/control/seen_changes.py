"""What this broker has seen of the metadata store, for itself and for its next process.

Owns the file `seen.json` and the process's `History`. What rests on a change outlives the broker that saw it: ids that
were given out are in logs. So the file is written before an id of a new block is used, and else soon. Must never be
left to what the database says of itself.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from tiered.broker.context import BrokerContext
from tiered.broker.host.data_folder import owner_of
from tiered.hot.file_system import read_whole, replace_file
from tiered.meta.history import History, Seen

log = logging.getLogger(__name__)

SEEN_FILE = "seen.json"
"""`{"version": 1, "cluster_id": text, "start": number, "server": text, "change_number": number}`"""
MAX_FILE_BYTES = 4096
NOTE_INTERVAL_MS = 1_000


class SeenChanges:
    """Of one broker. `went_back` is called in the event loop, once, when the database has lost what was seen in it."""

    def __init__(self, *, context: BrokerContext, went_back: Callable[[str], None]) -> None:
        self._context = context
        self._went_back = went_back
        self._path = str(context.data.root / SEEN_FILE)
        self._noted: Seen | None = None
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """From here on no call runs on a database that has lost what this broker's folder knows of. Its tables are as
        this version wants them."""
        self._noted = await self._context.disk.run(self._read)
        owner = await self._context.disk.run(owner_of, self._context.data.root)
        if self._noted is not None and owner is not None and owner.cluster_id != self._noted.cluster_id:
            self._noted = None  # Of the cluster from which a restore took this folder along.
        loop = asyncio.get_running_loop()

        def went_back(reason: str) -> None:  # Called from any thread.
            with suppress(RuntimeError):  # The loop is closed: nothing is served any more.
                loop.call_soon_threadsafe(self._went_back, reason)

        self._context.database.history = History(self._noted, broker_id=self._context.broker_id, on_went_back=went_back)

    async def note(self) -> None:
        """The folder knows what has been seen until now. An error is logged: then the next process knows less."""
        history = self._context.database.history
        async with self._turn:
            seen = None if history is None else history.seen
            if seen is None or seen == self._noted:
                return
            try:
                await self._context.disk.run(self._write, seen)
            except OSError as error:
                log.warning(
                    "%s cannot be written (%s): the next start may not notice a metadata store that went back",
                    self._path, error,
                )  # fmt: skip
            else:
                self._noted = seen

    def _read(self) -> Seen | None:
        data = read_whole(self._context.files, self._path, max_bytes=MAX_FILE_BYTES)
        if data is None:
            return None
        try:
            fields = json.loads(data)
            return Seen(
                cluster_id=str(fields["cluster_id"]),
                start=int(fields["start"]),
                server=str(fields["server"]),
                change_number=int(fields["change_number"]),
            )
        except (ValueError, KeyError, TypeError):
            log.warning("%s is damaged: whether the metadata store went back is not known at this start", self._path)
            return None

    def _write(self, seen: Seen) -> None:
        data = json.dumps({"version": 1, **asdict(seen)}).encode()
        replace_file(self._context.files, self._path, data, durable=True)

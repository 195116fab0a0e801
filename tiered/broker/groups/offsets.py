"""Committed offsets and generations in SQL, written together for many groups. (Not written yet.)"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.broker.groups.values import GroupKind, StoredGroup

if TYPE_CHECKING:
    from tiered.broker.broker import Broker


class Offsets:
    """Keeps nothing yet."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Takes the slots."""

    async def stop(self) -> None:
        """Writes what is due."""

    async def load_group(self, group_id: str) -> StoredGroup | None:
        return None

    async def list_groups(self) -> Iterable[StoredGroup]:
        return ()

    def note_generation(
        self, group_id: str, *, kind: GroupKind, protocol_type: str, generation: int, is_empty: bool
    ) -> None:
        """Marks the group's row as due; it is written along with the next batch."""

    async def delete_group(self, group_id: str) -> None:
        """Deletes the group's row and its offsets."""

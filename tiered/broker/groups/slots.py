"""The slots that this broker holds, by its latest news of them: from its own transactions or from the feed.

Owns the newest row of each slot, and the epochs under which this broker may write. Must never decide who should hold a
slot, nor be right: SQL looks again with every write. News that comes late changes nothing, for epochs only rise.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tiered.meta.coordinator_slots import SlotRow

NO_EPOCHS: Mapping[int, int] = MappingProxyType({})


class HeldSlots:
    """Rows may come in any order and as often as they like."""

    def __init__(self) -> None:
        self._rows: dict[int, SlotRow] = {}
        self._mine: dict[int, SlotRow] = {}
        self.epochs = NO_EPOCHS
        """Of the slots that this broker holds. Replaced when they change: whoever kept it has what was."""

    def learn(self, rows: Iterable[SlotRow], *, broker_id: int, broker_epoch: int) -> tuple[set[int], set[int]]:
        """(lost, gained) by this registration. A slot that went away and came back meanwhile is in both."""
        lost: set[int] = set()
        gained: set[int] = set()
        for row in rows:
            known = self._rows.get(row.slot)
            if known is not None and row.slot_epoch < known.slot_epoch:
                continue
            self._rows[row.slot] = row
            before = self._mine.pop(row.slot, None)
            is_mine = row.is_held_by(broker_id, broker_epoch)
            if is_mine:
                self._mine[row.slot] = row
            if before is None or before.tenure != row.tenure:
                lost.update([row.slot] if before is not None else [])
                gained.update([row.slot] if is_mine else [])
        self.epochs = MappingProxyType({slot: row.slot_epoch for slot, row in self._mine.items()})
        return lost, gained

    def holders(self) -> dict[int, int]:
        """The id of the broker that holds each slot, as far as it is known."""
        return {slot: row.broker_id for slot, row in self._rows.items()}

    def tenure(self, slot: int) -> int | None:
        """As long as it stays the same, nobody else has held the slot. None while this broker does not."""
        row = self._mine.get(slot)
        return None if row is None else row.tenure

    def held_since(self, slot: int) -> int | None:
        """The number of the change that gave this broker the slot. None while it does not hold it."""
        row = self._mine.get(slot)
        return None if row is None else row.change_number

    def __contains__(self, slot: object) -> bool:
        return slot in self._mine

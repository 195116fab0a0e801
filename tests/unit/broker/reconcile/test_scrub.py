"""What was uploaded is read again, a little all the time: damage is told, and the place outlives a restart."""

from pathlib import Path

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.reconcile.findings import FindingKind, Findings
from tiered.broker.reconcile.scrub import LOOK_AGAIN_MS, Scrub
from tiered.cold.local import LocalStore
from tiered.cold.object_store import parse_store_url
from tiered.errors import StoreRefused

RATE, PERIOD_MS = str(1 << 30), "3600000"
HOUR_MS = 3_600_000


def scrub(made: Tiers, findings: Findings) -> Scrub:
    return Scrub(context=made.context, topics=made.topics, pool=made.context.uploads, findings=findings)


async def turn(made: Tiers, scrubbing: Scrub) -> None:
    """Rounds until all was read."""
    before_ms = scrubbing.turn_ended_at_ms
    for _ in range(1000):
        made.clock.waited_ms += HOUR_MS
        await scrubbing.round()
        if scrubbing.turn_ended_at_ms != before_ms:
            return
    raise AssertionError("no end")


async def test_damage_is_told_and_looked_at_again_until_it_is_mended(tmp_path: Path) -> None:
    async with tiers(tmp_path, tiered_scrub_max_bytes_per_second=RATE, tiered_scrub_period_ms=PERIOD_MS) as made:
        await made.upload_all()
        findings = Findings()
        scrubbing, store = scrub(made, findings), made.context.store
        await turn(made, scrubbing)
        assert findings.all() == []
        assert made.context.counters.scrubbed_chunks == SEGMENTS
        key = made.partition.committed[2].object_key
        kept, _ = store.get(key, max_bytes=1 << 20)
        store.delete(key)
        store.put(key, kept[:80] + bytes([kept[80] ^ 1]) + kept[81:])
        made.clock.set_by_ms += 1
        await turn(made, scrubbing)
        (told,) = findings.all()
        assert (told.kind, told.name, told.first_offset) == (FindingKind.DAMAGED, key, 2)
        store.delete(key)
        store.put(key, kept)
        made.clock.set_by_ms += LOOK_AGAIN_MS + 1
        await scrubbing.round()
        assert findings.all() == [], "it is read before its turn comes"


async def test_nothing_is_read_where_the_rate_is_zero(tmp_path: Path) -> None:
    async with tiers(tmp_path, tiered_scrub_max_bytes_per_second="0") as made:
        await made.upload_all()
        scrubbing = scrub(made, Findings())
        for _ in range(3):
            made.clock.waited_ms += HOUR_MS
            await scrubbing.round()
        assert made.context.counters.scrubbed_bytes == 0


async def test_a_restarted_broker_goes_on_where_the_turn_was(tmp_path: Path) -> None:
    async with tiers(tmp_path, tiered_scrub_max_bytes_per_second=RATE, tiered_scrub_period_ms=PERIOD_MS) as made:
        await made.upload_all()
        first = scrub(made, Findings())
        while not made.context.counters.scrubbed_chunks:
            made.clock.waited_ms += 60_000
            await first.round()
        read = made.context.counters.scrubbed_chunks
        assert 0 < read < SEGMENTS
        second = scrub(made, Findings())
        await turn(made, second)
        assert made.context.counters.scrubbed_chunks == SEGMENTS


class Archived(LocalStore):
    """A local store that gives the bytes of some objects to nobody."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_store_url(url).directory)  # type: ignore[union-attr]
        self.refused: set[str] = set()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if key in self.refused:
            raise StoreRefused("the object is archived")
        return super().get_range(key, start, length)


async def test_an_object_that_cannot_be_read_holds_up_no_other_and_the_turn_does_not_claim_it(tmp_path: Path) -> None:
    stores: list[Archived] = []

    def store_at(url: str) -> Archived:
        stores.append(Archived(url))
        return stores[0]

    async with tiers(
        tmp_path, store_at=store_at, tiered_scrub_max_bytes_per_second=RATE, tiered_scrub_period_ms=PERIOD_MS
    ) as made:
        await made.upload_all()
        scrubbing = scrub(made, Findings())
        stores[0].refused = {made.partition.committed[1].object_key}
        for _ in range(SEGMENTS + 2):
            made.clock.waited_ms += HOUR_MS
            await scrubbing.round()
        assert made.context.counters.scrubbed_chunks >= SEGMENTS - 1
        assert made.context.counters.failing_items["scrubbing"] == 1
        assert scrubbing.turn_ended_at_ms == 0, "not all was read"
        stores[0].refused = set()
        await turn(made, scrubbing)
        assert made.context.counters.failing_items["scrubbing"] == 0

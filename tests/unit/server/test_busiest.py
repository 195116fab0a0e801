"""Who has series in `/metrics` where not all may: whoever has traffic now, and no longer than that lasts."""

from collections.abc import Sequence

import pytest

from tests.support.counted_turns import counted_turns
from tiered.server.http.metrics.busiest import CHOSEN_FOR_MS, HALF_LIFE_MS, Busiest

NAMES = ["a", "b", "c", "d"]


async def choose(busiest: Busiest[str], totals: dict[str, int], now_ms: float, *, limit: int = 2) -> Sequence[str]:
    return await busiest.of(sorted(totals), totals.__getitem__, limit=limit, now_ms=now_ms)


async def test_the_busiest_are_chosen_and_idle_names_go_by_their_order() -> None:
    busiest = Busiest[str]()
    assert await choose(busiest, dict.fromkeys(NAMES, 0), 0) == ["a", "b"]
    assert await choose(Busiest(), {"a": 0, "b": 0, "c": 1, "d": 0}, 0) == ["a", "c"]
    assert await choose(Busiest(), {"a": 5, "b": 1, "c": 7, "d": 6}, 0) == ["c", "d"]


async def test_all_are_chosen_where_there_is_room_and_none_at_zero() -> None:
    totals = {"a": 5, "b": 1}
    assert await choose(Busiest(), totals, 0) == ["a", "b"]
    assert await choose(Busiest(), totals, 0, limit=0) == []


async def test_a_choice_stays_for_a_minute_and_then_gives_way_to_twice_the_traffic() -> None:
    busiest = Busiest[str]()
    totals = {"a": 1000, "b": 900, "c": 0, "d": 0}
    assert await choose(busiest, totals, 0) == ["a", "b"]
    totals["c"] = 1500
    assert await choose(busiest, totals, CHOSEN_FOR_MS - 1) == ["a", "b"]
    assert await choose(busiest, totals, CHOSEN_FOR_MS) == ["a", "b"], "not twice the traffic of b"
    totals["c"] += 1500
    assert await choose(busiest, totals, 2 * CHOSEN_FOR_MS) == ["a", "c"]


async def test_traffic_of_the_past_fades() -> None:
    busiest = Busiest[str]()
    totals = {"a": 1_000_000, "b": 1_000_000, "c": 0}
    assert await choose(busiest, totals, 0) == ["a", "b"]
    totals["c"] = 1000
    assert await choose(busiest, totals, 5 * HALF_LIFE_MS) == ["a", "b"]
    totals["c"] += 1000
    assert await choose(busiest, totals, 15 * HALF_LIFE_MS) == ["a", "c"]


async def test_a_name_that_goes_leaves_its_place_at_once() -> None:
    busiest = Busiest[str]()
    assert await choose(busiest, {"a": 9, "b": 8, "c": 7, "d": 6}, 0) == ["a", "b"]
    assert await choose(busiest, {"a": 9, "c": 7, "d": 6}, 1) == ["a", "c"]


async def test_totals_that_did_not_begin_with_the_process_count_from_the_first_look_on() -> None:
    busiest = Busiest[str](counts_from_zero=False)
    totals = {"a": 0, "b": 10, "c": 1_000_000}
    assert await choose(busiest, totals, 0) == ["a", "b"]
    totals["b"] += 1
    assert await choose(busiest, totals, CHOSEN_FOR_MS) == ["a", "b"]
    totals["c"] += 1
    assert await choose(busiest, totals, 2 * CHOSEN_FOR_MS) == ["b", "c"]


async def test_a_total_that_fell_began_anew() -> None:
    busiest = Busiest[str]()
    totals = {"a": 1000, "b": 900, "c": 800}
    assert await choose(busiest, totals, 0) == ["a", "b"]
    totals["b"], totals["c"] = 1, 800 + 2000
    assert await choose(busiest, totals, CHOSEN_FOR_MS) == ["a", "c"]


async def test_those_chosen_are_looked_up_among_all_names_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    busiest, totals = Busiest[str](), {f"t{number:03}": 0 for number in range(100)}
    await choose(busiest, totals, 0)
    turns, names = await counted_turns(busiest.of(sorted(totals), totals.__getitem__, limit=2, now_ms=1))
    assert names == ["t000", "t001"]
    assert turns >= 100

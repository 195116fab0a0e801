"""One item that fails blocks no other, is named once and counted; a store that is away ends the round."""

import pytest

from tiered.broker import one_by_one
from tiered.broker.one_by_one import OneByOne
from tiered.errors import CorruptObject, StoreUnavailable
from tiered.metrics import CountersState


class Work:
    """Work on letters, of which some fail."""

    def __init__(self) -> None:
        self.counters = CountersState()
        self.fails: dict[str, Exception] = {}
        self.tried = ""
        self._rounds = OneByOne("tidying", counters=self.counters)

    async def round(self, items: str) -> int:
        self.tried = ""
        return await self._rounds.run(items, self._work, name="item {}".format)

    async def _work(self, item: str) -> None:
        self.tried += item
        if item in self.fails:
            raise self.fails[item]

    @property
    def failing(self) -> int:
        return self.counters.failing_items["tidying"]


@pytest.mark.parametrize(
    "error", [CorruptObject("bad"), StoreUnavailable("bad"), OSError("bad"), AssertionError("bad")]
)
async def test_what_is_behind_an_item_that_fails_is_done(error: Exception) -> None:
    work = Work()
    work.fails["b"] = error
    assert await work.round("abcd") == 1
    assert (work.tried, work.failing) == ("abcd", 1)


async def test_an_item_is_named_when_it_begins_to_fail_and_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()
    work.fails["b"] = CorruptObject("damaged")
    for _ in range(3):
        await work.round("abc")
    del work.fails["b"]
    await work.round("abc")
    assert caplog.messages == [
        "tidying failed for item b, which is tried again; others go on: damaged",
        "tidying works again for item b",
    ]
    assert work.failing == 0


async def test_a_store_that_is_away_ends_the_round_and_the_next_one_begins_with_others() -> None:
    work = Work()
    work.fails = dict.fromkeys("abc", StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        await work.round("abcdef")
    assert work.tried == "abc"
    with pytest.raises(StoreUnavailable):
        await work.round("abcdef")
    assert work.tried == "defabc"


async def test_answers_between_failures_show_that_the_store_is_not_away() -> None:
    work = Work()
    work.fails = dict.fromkeys("abde", StoreUnavailable("away")) | {"f": CorruptObject("damaged")}
    assert await work.round("abcdefg") == 5
    assert work.tried == "abcdefg"


async def test_items_that_are_there_no_more_do_not_count() -> None:
    work = Work()
    work.fails = dict.fromkeys("ab", CorruptObject("damaged"))
    await work.round("abc")
    await work.round("bc")
    assert work.failing == 1


async def test_a_round_names_a_few_and_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.fails = dict.fromkeys("abcdefghij", CorruptObject("damaged"))
    assert await work.round("abcdefghij") == 10
    assert len(caplog.messages) == one_by_one.MAX_NAMED + 1
    assert "tiered_failing_items" in caplog.messages[-1]

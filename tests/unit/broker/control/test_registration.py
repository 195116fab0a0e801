"""How a process becomes the broker of its number, and what its marker lets the next one believe (rule 8)."""

from pathlib import Path

import pytest

from tests.unit.broker.context import Surroundings, surroundings
from tiered.broker.control.registration import Registered, Registration
from tiered.errors import InvalidConfig
from tiered.meta import brokers

ADDRESS = ("127.0.0.1", 9092)


async def registered(made: Surroundings, *, boot_id: str = "a boot") -> tuple[Registration, Registered]:
    registration = Registration(context=made.context, boot_id=boot_id)
    found = await registration.register(advertised=ADDRESS, http=None)
    made.state.broker_epoch = found.broker_epoch
    return registration, found


async def test_the_next_process_is_clean_after_a_kill_and_not_after_a_boot(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        _, first = await registered(made)
        _, second = await registered(made)
        _, third = await registered(made, boot_id="another boot")
        assert (second.was_clean, third.was_clean) == (True, False)
        assert first.broker_epoch < second.broker_epoch < third.broker_epoch


async def test_logs_that_were_flushed_are_clean_after_a_boot_too(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        registration, _ = await registered(made)
        await registration.logs_flushed()
        assert (await registered(made, boot_id="another boot"))[1].was_clean


async def test_a_log_that_failed_leaves_no_marker_behind(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        registration, _ = await registered(made)
        registration.log_failed()
        await registration.logs_flushed()
        assert not (await registered(made))[1].was_clean


async def test_a_catalogue_for_one_broker_takes_no_second_one(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        await made.context.database.run(
            lambda conn: brokers.register(conn, broker_id=9, host="h", port=1, boot_id="", clean_epoch=None)
        )
        with pytest.raises(InvalidConfig, match="belongs to broker 9"):
            await registered(made)

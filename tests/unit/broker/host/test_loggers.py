"""The loggers that people may look at and set: our own, by Kafka's levels, all of a request or nothing."""

import logging
from collections.abc import Iterator

import pytest

from tiered.broker.host.loggers import alter_loggers, describe_loggers
from tiered.config import ConfigChange, ConfigOperation
from tiered.errors import InvalidConfig, InvalidRequest

NAME = "tiered.of_this_test"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    ours, one = logging.getLogger("tiered"), logging.getLogger(NAME)
    logging.getLogger("somebody.elses")
    before = ours.level, one.level
    yield
    ours.setLevel(before[0])
    one.setLevel(before[1])


def change(name: str, value: str | None, operation: ConfigOperation = ConfigOperation.SET) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


def described() -> dict[str, str | None]:
    return {entry.name: entry.value for entry in describe_loggers()}


def test_a_logger_has_its_own_level_or_that_of_the_one_above_it() -> None:
    alter_loggers([change("root", "ERROR")], validate_only=False)
    assert (described()["root"], described()[NAME]) == ("ERROR", "ERROR")
    alter_loggers([change(NAME, "TRACE")], validate_only=False)
    assert (described()["root"], described()[NAME]) == ("ERROR", "TRACE")
    alter_loggers([change(NAME, None, ConfigOperation.DELETE)], validate_only=False)
    assert described()[NAME] == "ERROR"


def test_loggers_of_libraries_are_neither_shown_nor_set() -> None:
    assert all(name == "root" or name.startswith("tiered.") for name in described())
    with pytest.raises(InvalidConfig, match="describe the loggers"):
        alter_loggers([change("somebody.elses", "DEBUG")], validate_only=False)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (change(NAME, "LOUD"), InvalidConfig),
        (change(NAME, None), InvalidConfig),
        (change("root", None, ConfigOperation.DELETE), InvalidRequest),
        (change(NAME, "INFO", ConfigOperation.APPEND), InvalidRequest),
    ],
)
def test_of_a_request_that_is_wrong_in_part_nothing_is_done(wrong: ConfigChange, error: type[Exception]) -> None:
    before = described()
    with pytest.raises(error):
        alter_loggers([change("root", "FATAL"), wrong], validate_only=False)
    alter_loggers([change("root", "FATAL")], validate_only=True)
    assert described() == before

"""Configs of what is neither topic nor broker, over the wire: consumer groups, and lists of what has configs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.new_members import NewMember, create_topic
from tests.components.wire.config_resources import (
    ALTER_ALL,
    APPEND,
    DELETE,
    INVALID_CONFIG,
    INVALID_REQUEST,
    SET,
    UNSUPPORTED_VERSION,
    alter,
    describe,
    listed,
    values,
)
from tiered.wire import messages

LOGGER, GROUP = 8, 32
DEFAULT_SOURCE, OF_LOGGER, OF_GROUP = 5, 6, 8
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
KAFKAS_GROUP_CONFIGS = {
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "share.auto.offset.reset": "latest",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.record.lock.duration.ms": "30000",
    "share.session.timeout.ms": "45000",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.session.timeout.ms": "45000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    lowest = {"group.consumer.min.session.timeout.ms": 400, "group.consumer.min.heartbeat.interval.ms": 100}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=lowest).start()
    yield process
    process.ensure_stopped()


# Groups


def test_a_group_has_the_configs_of_kafka_whether_there_is_one_or_not(broker: BrokerProcess) -> None:
    found = values(broker, GROUP, "nobody")
    assert found == {name: (value, DEFAULT_SOURCE) for name, value in KAFKAS_GROUP_CONFIGS.items()}
    inert = {each.name for each in describe(broker, GROUP, "nobody").configs if "no share" in each.documentation}
    assert inert == {name for name in KAFKAS_GROUP_CONFIGS if name.startswith("share.")}


def test_group_configs_are_set_one_by_one_deleted_replaced_and_listed(broker: BrokerProcess) -> None:
    assert (
        alter(broker, GROUP, "set", (SESSION, SET, "50000"), ("share.isolation.level", SET, "read_committed"))[0] == 0
    )
    assert values(broker, GROUP, "set")[SESSION] == ("50000", OF_GROUP)
    assert (GROUP, "set") in listed(broker)[1]
    assert (GROUP, "nobody") not in listed(broker, GROUP)[1]
    assert alter(broker, GROUP, "set", (SESSION, DELETE, None))[0] == 0
    assert values(broker, GROUP, "set")[SESSION] == ("45000", DEFAULT_SOURCE)
    assert values(broker, GROUP, "set")["share.isolation.level"] == ("read_committed", OF_GROUP)
    make = messages.request(ALTER_ALL, 2)
    resource = make.AlterConfigsResource(resource_type=GROUP, resource_name="set", configs=[])
    with RawConnection(broker) as connection:
        connection.ask(ALTER_ALL, 2, make.AlterConfigsRequest(resources=[resource], validate_only=False))
    assert (GROUP, "set") not in listed(broker, GROUP)[1]


@pytest.mark.parametrize(
    ("group", "name", "value", "code"),
    [
        ("", SESSION, "50000", INVALID_REQUEST),
        ("g", "no.such.config", "1", INVALID_CONFIG),
        ("g", SESSION, "soon", INVALID_CONFIG),
        ("g", SESSION, "399", INVALID_CONFIG),
        ("g", SESSION, "60001", INVALID_CONFIG),
        ("g", SESSION, "5000", INVALID_CONFIG),
        ("g", "share.heartbeat.interval.ms", "45000", INVALID_CONFIG),
        ("g", "share.isolation.level", "read_all", INVALID_CONFIG),
    ],
)
def test_what_no_group_may_have_is_refused(broker: BrokerProcess, group: str, name: str, value: str, code: int) -> None:
    assert alter(broker, GROUP, group, (name, SET, value))[0] == code
    assert not any(kind == GROUP and each == group for kind, each in listed(broker)[1])


def test_a_groups_own_time_outs_count_for_its_members_and_for_no_others(broker: BrokerProcess) -> None:
    create_topic(broker, "timed", 2)
    with NewMember(broker, "quick", topics=["timed"]) as quick, NewMember(broker, "other", topics=["timed"]) as other:
        assert other.ask(**other.everything()).heartbeat_interval == 5000
        assert alter(broker, GROUP, "quick", (INTERVAL, SET, "300"), (SESSION, SET, "600"))[0] == 0
        assert quick.ask(**quick.everything()).heartbeat_interval == 300
        with NewMember(broker, "quick", topics=["timed"]) as stays:
            # Whoever stays hears of it when the silent one has left, after 600 ms and not after 45 s.
            stays.join()
            while stays.partitions != {0, 1}:
                stays.obey()


def test_group_configs_survive_a_restart(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    try:
        assert alter(process, GROUP, "kept", (SESSION, SET, "50000"))[0] == 0
        process.stop()
        process.start()
        assert values(process, GROUP, "kept")[SESSION] == ("50000", OF_GROUP)
    finally:
        process.ensure_stopped()


# Loggers


def test_a_loggers_level_counts_at_once_is_taken_back_and_is_not_kept(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    logger = "tiered.broker.groups.consumer_group"
    process = make_broker().start()
    create_topic(process, "told", 1)
    said = "group chatty has a target"
    with NewMember(process, "chatty", topics=["told"]) as member:
        assert values(process, LOGGER, "1")[logger] == ("INFO", OF_LOGGER)
        assert alter(process, LOGGER, "1", (logger, SET, "DEBUG")) == (0, "")
        member.join()
        assert said in process.log()
    assert values(process, LOGGER, "1")[logger] == ("DEBUG", OF_LOGGER)
    assert alter(process, LOGGER, "1", (logger, DELETE, None)) == (0, "")
    assert alter(process, LOGGER, "1", ("root", SET, "ERROR")) == (0, "")
    assert values(process, LOGGER, "1")[logger] == ("ERROR", OF_LOGGER)
    assert not any(name.startswith("sqlalchemy") for name in values(process, LOGGER, "1"))
    process.stop()
    process.start()
    assert values(process, LOGGER, "1")["root"] == ("INFO", OF_LOGGER)
    assert (LOGGER, "1") in listed(process)[1]


@pytest.mark.parametrize(
    ("name", "step", "code"),
    [
        ("", ("root", SET, "DEBUG"), INVALID_REQUEST),
        ("2", ("root", SET, "DEBUG"), INVALID_REQUEST),
        ("1", ("root", APPEND, "DEBUG"), INVALID_REQUEST),
        ("1", ("root", DELETE, None), INVALID_REQUEST),
        ("1", ("root", SET, "LOUD"), INVALID_CONFIG),
        ("1", ("root", SET, None), INVALID_CONFIG),
        ("1", ("botocore", SET, "DEBUG"), INVALID_CONFIG),
    ],
)
def test_what_no_logger_can_be_told_is_refused(
    broker: BrokerProcess, name: str, step: tuple[str, int, str | None], code: int
) -> None:
    both = (("tiered.broker.broker", SET, "FATAL"), step)
    assert alter(broker, LOGGER, name, *both)[0] == code
    assert values(broker, LOGGER, "1")["tiered.broker.broker"] == ("INFO", OF_LOGGER)


def test_a_kind_without_configs_cannot_be_listed(broker: BrokerProcess) -> None:
    assert listed(broker, 99) == (UNSUPPORTED_VERSION, set())

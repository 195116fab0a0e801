"""What the commands and Spark's reader do with brokers that lie: an error that says so, soon, and no stack trace."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from pyspark_tiered.brokers import Brokers
from pyspark_tiered.options import Subscribe, parse_options
from pyspark_tiered.plan import TailSplit
from pyspark_tiered.tail_read import read_tail_split
from tests.components.lying_broker import END, LyingBroker, batch_at
from tiered.cli.failure import CommandFailed
from tiered.cli.records import consume
from tiered.errors import RequestTimedOut
from tiered.peer import Cluster, CorruptAnswer
from tiered.runtime import SystemClock

FIND_COORDINATOR, DELETE_GROUPS, DESCRIBE_QUOTAS = 10, 42, 48
READ_ALL = ("consume", "numbers", "--exit-at-end")


def told(broker: LyingBroker, *command: str) -> str:
    """The one line by which a command fails."""
    run = subprocess.run(
        [sys.executable, "-m", "tiered.cli", *command, "-b", broker.bootstrap],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run
    assert len(run.stderr.splitlines()) == 1, run.stderr
    return run.stderr


def spark_rows(broker: LyingBroker) -> int:
    options = parse_options(
        {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "numbers", "kafkaConsumer.pollTimeoutMs": "2000"},
        streaming=False,
    )
    split = TailSplit(topic="numbers", topic_id=None, partition=0, start_offset=0, end_offset=END)
    return sum(rows.num_rows for rows in read_tail_split(options, split, columns=["offset"]))


def test_what_an_honest_broker_has_is_read() -> None:
    with LyingBroker() as broker:
        assert spark_rows(broker) == END


@pytest.mark.parametrize(
    "lie", [{"host": "127.0.0.1\0x"}, {"host": "x" * 64 + ".example"}, {"host": "a..b"}, {"port": 70_000}, {"port": -1}]
)
def test_addresses_that_are_none_are_an_error_that_shows_them(lie: dict[str, Any]) -> None:
    with LyingBroker(**lie) as broker:
        assert "is no address of a broker" in told(broker, *READ_ALL)


def test_records_of_a_partition_that_was_not_asked_for_are_refused() -> None:
    with LyingBroker(fetched=77) as broker:
        assert "partition 77 of numbers, which was not asked" in told(broker, *READ_ALL)


@pytest.mark.parametrize("records", [lambda at: batch_at(0, [b"x"]), lambda at: batch_at(max(0, at - 1), [b"x"])])
def test_the_same_records_again_and_again_come_to_an_end(records: Any) -> None:
    with LyingBroker(records=records) as broker:
        assert "asked for offset 1, the broker gives records up to 0" in told(broker, *READ_ALL)
    with LyingBroker(records=records) as broker:
        with pytest.raises(RequestTimedOut, match="give no record at offset 1"):
            spark_rows(broker)
        assert broker.fetches < END


def test_a_topic_without_a_name_is_an_error() -> None:
    with LyingBroker(name=None) as broker:
        assert "a topic without a name" in told(broker, "topics", "list")


@pytest.mark.parametrize("number", [2**31 - 1, -1])
def test_partitions_without_end_are_refused_before_anything_is_planned_for_each(number: int) -> None:
    with (
        LyingBroker(partitions=[0, number]) as broker,
        Brokers(broker.bootstrap) as brokers,
        pytest.raises(CorruptAnswer, match=f"tells of partition {number}"),
    ):
        brokers.topics(Subscribe(topics=("numbers",)))


def coordinators(make: Any, *, port: int) -> Any:
    found = make.Coordinator(key="g", node_id=1, host="127.0.0.1", port=port, error_code=0, error_message=None)
    return make.FindCoordinatorResponse(throttle_time=0, coordinators=[found])


def test_answers_about_nothing_are_an_error() -> None:
    nobody = {FIND_COORDINATOR: (4, lambda make: make.FindCoordinatorResponse(throttle_time=0, coordinators=[]))}
    with LyingBroker(also=nobody) as broker:
        assert "was asked about one coordinator and answers about 0" in told(broker, "groups", "delete", "g")
    nothing = {
        FIND_COORDINATOR: (4, lambda make: coordinators(make, port=broker.port)),
        DELETE_GROUPS: (2, lambda make: make.DeleteGroupsResponse(throttle_time=0, results=[])),
    }
    with LyingBroker(also=nothing) as broker:
        assert "was asked about one group and answers about 0" in told(broker, "groups", "delete", "g")


def test_a_quota_that_is_no_number_is_an_error() -> None:
    def described(make: Any) -> Any:
        of = [make.EntityData(entity_type="user", entity_name="a")]
        entry = make.EntryData(entity=of, values=[make.ValueData(key="producer_byte_rate", value=float("inf"))])
        return make.DescribeClientQuotasResponse(throttle_time=0, error_code=0, error_message=None, entries=[entry])

    with LyingBroker(also={DESCRIBE_QUOTAS: (1, described)}) as broker:
        assert "a quota that is no number" in told(broker, "quotas", "list")


def test_what_a_broker_never_gives_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "PATIENCE_S", 0.3)

    async def show(broker: LyingBroker) -> None:
        async with Cluster(broker.bootstrap) as cluster:
            where = ("numbers", 0)
            fetcher = consume.RecordFetcher(cluster, SystemClock())
            await consume.Consumption(fetcher, {where: 0}, {where: END}, None, consume.Lines(None)).run()

    with LyingBroker(records=lambda at: b"") as broker, pytest.raises(CommandFailed, match="nothing from offset 0 on"):
        asyncio.run(asyncio.wait_for(show(broker), 30))

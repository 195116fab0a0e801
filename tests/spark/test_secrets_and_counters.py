"""What must not be seen, and what must not happen: no secret in an error, no Fetch for a cold record."""

import re
import urllib.request
from collections.abc import Iterator

import pytest

from pyspark_tiered.batch import BatchReader
from pyspark_tiered.options import parse_options
from tests.spark.pinned_topics import append, offsets_of
from tests.spark.secured_options import SECRET, SECURED
from tiered.errors import InvalidConfig
from tiered.testing import LocalCluster, cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster() as running:
        yield running


def fetches(broker: LocalCluster) -> float:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = re.findall(r'^tiered_requests_total\{[^}]*"(?:Fetch|fetch)"[^}]*\} (\S+)$', text, re.MULTILINE)
    return sum(float(each) for each in found)


def test_cold_records_cost_the_brokers_no_fetch_and_the_tail_does(broker: LocalCluster) -> None:
    topic = broker.create_topic(configs={"segment.bytes": 3000, "local.retention.bytes": 1})
    append(broker, topic, 40)
    broker.tier(topic, keep_local=False)
    given = {"store": broker.store_url, "kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    before = fetches(broker)
    cold = BatchReader(
        parse_options(given | {"endingOffsets": f'{{"{topic}":{{"0":38}}}}'}, streaming=False), ("offset",)
    )
    assert [offset for split in cold.partitions() for offset in offsets_of(cold.read(split))] == list(range(38))
    assert fetches(broker) == before
    # The same counter moves where records come from brokers, so it is the right one.
    alone = {name: value for name, value in given.items() if name != "store"}
    tail = BatchReader(parse_options(alone, streaming=False), ("offset",))
    assert [offset for split in tail.partitions() for offset in offsets_of(tail.read(split))] == list(range(40))
    assert fetches(broker) > before


@pytest.mark.parametrize("secured", SECURED, ids=lambda given: next(iter(given)))
@pytest.mark.parametrize("streaming", [False, True])
def test_what_cannot_be_served_is_refused_without_its_value(secured: dict[str, str], streaming: bool) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **secured}
    with pytest.raises(InvalidConfig) as caught:
        parse_options(given, streaming=streaming)
    assert next(iter(secured)) in str(caught.value)
    assert SECRET not in str(caught.value)

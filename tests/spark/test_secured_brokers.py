"""Reads and writes of brokers over TLS, with the certificates that `kafka.ssl.*` names."""

import dataclasses
import pickle
from collections.abc import Iterator

import pytest

from pyspark_tiered.batch import BatchReader
from pyspark_tiered.options import parse_options
from pyspark_tiered.write import write_rows
from pyspark_tiered.write_options import WriteOptions
from tests.certificates import Authority
from tests.spark.test_pins import offsets_of
from tests.spark.test_write import batch
from tiered.errors import InvalidConfig
from tiered.testing import LocalCluster, cluster


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[LocalCluster]:
    settings = {
        "ssl.keystore.location": authority.sign("server").both,
        "ssl.truststore.location": authority.pem,
        "ssl.client.auth": "required",
    }
    with cluster(listeners={"SECURE": "SSL"}, settings=settings, topics={"rows": 1}) as running:
        yield running


def test_rows_are_written_and_read_with_a_certificate(broker: LocalCluster, authority: Authority) -> None:
    me = authority.sign("spark", password="hunter2")
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_at("SECURE"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(authority.pem),
        "kafka.ssl.keystore.location": str(me.both),
        "kafka.ssl.key.password": "hunter2",
        "subscribe": "rows",
    }
    # As Spark sends them to its executors.
    options = pickle.loads(pickle.dumps(parse_options(given, streaming=False)))
    assert "hunter2" not in repr(options)
    writing = WriteOptions(
        bootstrap_servers=broker.bootstrap_at("SECURE"),
        topic="rows",
        columns=("value",),
        client=dataclasses.replace(options.client),
    )
    assert write_rows(writing, iter([batch(value=[b"one", b"two", b"three"])])).records == 3
    reader = BatchReader(options, ("offset",))
    assert [offset for split in reader.partitions() for offset in offsets_of(reader.read(split))] == [0, 1, 2]


def test_certificates_without_their_protocol_are_refused() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.ssl.truststore.location": "/ca.pem"}
    with pytest.raises(InvalidConfig, match=r"no effect with kafka\.security\.protocol=PLAINTEXT"):
        parse_options(given, streaming=False)

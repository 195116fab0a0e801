"""Reads and writes of brokers over TLS, with the certificates that `kafka.ssl.*` names."""

import dataclasses
import pickle
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pyspark_tiered.batch import BatchReader
from pyspark_tiered.options import parse_options
from pyspark_tiered.pins import PinDoor
from pyspark_tiered.write import write_rows
from pyspark_tiered.write_options import WriteOptions
from tests.certificates import Authority
from tests.spark.pinned_topics import offsets_of
from tests.spark.written_batches import batch
from tiered.config.client_security import ClientSecurity
from tiered.config.listeners import SecurityProtocol
from tiered.config.secret import Secret
from tiered.errors import InvalidConfig, InvalidRequest
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]


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


def test_pins_are_asked_for_by_whoever_logs_in_to_the_brokers() -> None:
    with cluster(settings={"tiered.http.authentication": "basic"}, topics={"rows": 1}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        (made,) = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("spark", scram, b"hunter2")]
        ).values()
        made.result(10)
        me = ClientSecurity(
            protocol=SecurityProtocol.SASL_SSL,
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="spark",
            sasl_password=Secret("hunter2", name="kafka.sasl.password"),
        )
        door = PinDoor([running.http_url], me)
        pin = door.take("rows")
        door.release([pin])
        with pytest.raises(InvalidRequest, match="option catalog: log in"):
            PinDoor([running.http_url]).take("rows")

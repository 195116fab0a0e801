"""No plan, no error and no log of Spark shows what an option of a client holds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.secured_options import SECRET, SECURED
from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster() as running:
        yield running


def test_a_secret_is_in_no_plan_and_no_error_of_spark(
    spark: SparkSession, broker: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for secured in SECURED[:2]:
        reader = spark.read.format("tiered").options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"})
        with pytest.raises(Exception, match=r"option kafka\.s") as caught:
            reader.options(**secured).load().collect()
        assert SECRET not in str(caught.value)
        writer = spark.createDataFrame([("v",)], "value string").write.format("tiered").mode("append")
        with pytest.raises(Exception, match=r"option kafka\.s") as caught:
            writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", **secured}).save()
        assert SECRET not in str(caught.value)
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err


def test_a_plan_shows_no_option(spark: SparkSession, broker: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    topic = broker.create_topic()
    reader = spark.read.format("tiered").options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic})
    frame = reader.option("kafka.client.id", SECRET).load().where("offset > 5")
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    assert frame.collect() == []
    said = capfd.readouterr()
    assert "offset" in said.out
    assert SECRET not in said.out + said.err

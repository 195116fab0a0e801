"""Brokers that reconcile by themselves, in S3 too: `tiered reconcile`, /readyz and /metrics tell the same."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.components.tiers import eventually
from tests.support.local_clusters import produce
from tiered.cli import main
from tiered.testing import LocalCluster, cluster

SETTINGS = {
    "tiered.reconcile.interval.ms": "50",
    "tiered.reconcile.period.ms": "0",
    "tiered.scrub.period.ms": "1",
    "tiered.scrub.max.bytes.per.second": str(1 << 30),
}
Report = tuple[int, dict[str, Any]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[LocalCluster], Report]:
    """The exit code of `tiered reconcile --json`, and what it printed."""

    def run(c: LocalCluster) -> Report:
        capsys.readouterr()
        code = main(["reconcile", "--http", c.http_url, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def kinds(report: Report) -> dict[str, str]:
    """The names of the objects that something is wrong with, and what."""
    return {each["name"]: each["kind"] for each in report[1]["findings"]}


@pytest.mark.slow
def test_lost_cut_and_flipped_objects_in_s3_are_told_everywhere_until_they_are_back(
    report: Callable[[LocalCluster], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(s3="moto", topics={"orders": 1}, settings=SETTINGS) as c:
        for number in range(4):
            produce(c, "orders", b"%d" % number * 500)
            c.tier("orders", keep_local=False)
        client = c.s3_client()
        listed = client.list_objects_v2(Bucket=c.s3_bucket, Prefix="test/segments/")["Contents"]
        keys = [each["Key"] for each in listed]
        whole = {key: client.get_object(Bucket=c.s3_bucket, Key=key)["Body"].read() for key in keys}
        assert len(keys) == 4
        lost, cut, flipped, _ = keys
        eventually(lambda: report(c)[1]["brokers"][0]["scrubbed_chunks"] > 0, "the brokers look by themselves")
        assert report(c)[0] == 0

        client.delete_object(Bucket=c.s3_bucket, Key=lost)
        client.put_object(Bucket=c.s3_bucket, Key=cut, Body=whole[cut][:-1])
        bad = bytearray(whole[flipped])
        bad[100] ^= 1
        client.put_object(Bucket=c.s3_bucket, Key=flipped, Body=bytes(bad))
        wanted = {lost: "missing", cut: "wrong-size", flipped: "damaged"}
        wanted = {key.removeprefix("test/"): kind for key, kind in wanted.items()}
        eventually(lambda: kinds(report(c)) == wanted, "each is named rightly")
        assert report(c)[0] == 1
        counts = c.health()["findings"]
        assert {kind: count for kind, count in counts.items() if count} == {"missing": 1, "wrong-size": 1, "damaged": 1}
        with urllib.request.urlopen(c.http_url + "/metrics", timeout=30) as answer:
            assert 'tiered_reconcile_findings{kind="damaged"} 1' in answer.read().decode()
        doctor = ["doctor", "--data", str(c.data), "--kafka", c.bootstrap, "--http", c.http_url.removeprefix("http://")]
        main([*doctor, "--only", "broker"])
        assert (
            "disk, metadata store and object store disagree: 1 missing, 1 wrong-size, 1 damaged"
            in capsys.readouterr().out
        )
        assert main(["reconcile", "--http", c.http_url]) == 1
        text = capsys.readouterr().out
        # By a list of the objects, or by a read of it: whatever came first.
        assert "orders-0 offsets 0..0: missing: " in text
        assert "-> put the object back" in text
        assert text.endswith("3 findings\n")

        for key, data in whole.items():
            client.put_object(Bucket=c.s3_bucket, Key=key, Body=data)
        client.close()
        eventually(lambda: report(c)[0] == 0, "all is well again")
        assert main(["reconcile", "--http", c.http_url]) == 0
        assert capsys.readouterr().out.endswith("nothing is known to be wrong\n")


def test_a_cluster_looks_at_each_partition_once_and_tells_at_any_broker(
    report: Callable[[LocalCluster], Report], tmp_path: Path
) -> None:
    store = f"file://{tmp_path}/objects"
    with cluster(brokers=2, topics={"orders": 1}, settings=SETTINGS, store=store) as c:
        produce(c, "orders", *(b"%d" % number * 500 for number in range(20)))
        c.tier("orders", keep_local=False)
        objects = sorted(tmp_path.rglob("*.seg"))
        assert objects
        data = {each: each.read_bytes() for each in objects}
        for each in objects:
            each.unlink()
        eventually(lambda: len(report(c)[1]["findings"]) == len(objects), "every object is missed, by one broker")
        found = report(c)[1]
        assert found["silent"] == []
        assert [each["broker_id"] for each in found["brokers"]] == [1, 2]
        assert {each["kind"] for each in found["findings"]} == {"missing"}
        for each, content in data.items():
            each.write_bytes(content)
        eventually(lambda: report(c)[0] == 0, "all is well again")


def test_a_test_cluster_makes_no_request_of_its_own(report: Callable[[LocalCluster], Report]) -> None:
    with cluster(topics={"orders": 1}) as c:
        code, found = report(c)
    assert (code, found["brokers"][0]["enabled"]) == (0, False)

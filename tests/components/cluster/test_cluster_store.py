"""A broker serves with the object store of its cluster, or not at all."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, free_port
from tiered.cli import main

pytest_plugins = ["tests.meta_databases"]

Make = Callable[..., BrokerProcess]
AWAY = "endpoint_url=http://127.0.0.1:{}&region=eu-central-1"
"""A broker starts while its store cannot be reached."""
S3 = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "thing"}


def refusal(process: BrokerProcess) -> str:
    with pytest.raises(AssertionError, match="did not get ready"):
        process.start()
    return process.log().splitlines()[-1]


def recorded(database: Path) -> str:
    with closing(sqlite3.connect(database)) as conn:
        ((store,),) = conn.execute("SELECT store FROM cluster").fetchall()
    return str(store)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_second_broker_with_another_store_is_refused_and_takes_no_number(
    make_broker: Make, database_url: str, tmp_path: Path
) -> None:
    meta = ("--meta", database_url)
    first = make_broker(*meta, "--store", f"file://{tmp_path}/ours", name="one").start()
    wrong = make_broker(*meta, "--store", f"file://{tmp_path}/typo", "--broker-id", "2", name="two")
    said = refusal(wrong)
    assert f"this broker's object store is {(tmp_path / 'typo').as_uri()}, " in said
    assert f"and the cluster's is {(tmp_path / 'ours').as_uri()}" in said
    # The number of a live one: it is not stopped by a newcomer that is refused.
    said = refusal(make_broker(*meta, "--store", f"file://{tmp_path}/typo", "--broker-id", "1", name="three"))
    assert "another --meta" in said
    wrong.arguments[wrong.arguments.index("--store") + 1] = f"file://{tmp_path}/ours"
    wrong.start()
    assert first.process is not None
    assert first.process.poll() is None


def test_the_same_bucket_by_another_way_is_taken_and_another_prefix_is_not(make_broker: Make) -> None:
    broker = make_broker("--store", f"s3://bucket-of-tests/a?{AWAY.format(free_port())}", environ=S3).start()
    assert recorded(broker.data / "meta.db") == "s3://bucket-of-tests/a"
    broker.kill()
    broker.arguments = ["--store", f"s3://bucket-of-tests/a/?{AWAY.format(free_port())}&checksum=none"]
    broker.start().kill()
    broker.arguments = ["--store", f"s3://bucket-of-tests/b?{AWAY.format(free_port())}"]
    assert "is s3://bucket-of-tests/b, and the cluster's is s3://bucket-of-tests/a: " in refusal(broker)
    # A store that was forgotten is the one within the data folder.
    broker.arguments = []
    assert "/data/./objects, and the cluster's is s3://bucket-of-tests/a: " in refusal(broker)


def test_the_statement_that_a_refusal_names_moves_the_cluster(make_broker: Make, tmp_path: Path) -> None:
    broker = make_broker().start()
    broker.stop()
    broker.arguments = ["--store", f"file://{tmp_path}/o'ther"]
    statement = refusal(broker).partition("UPDATE")[2].partition(" (docs")[0]
    with closing(sqlite3.connect(broker.data / "meta.db")) as conn, conn:
        conn.execute(f"UPDATE{statement}")
    broker.start()
    assert recorded(broker.data / "meta.db") == (tmp_path / "o'ther").as_uri()


def test_a_data_folder_may_be_moved_with_the_store_within(make_broker: Make, tmp_path: Path) -> None:
    broker = make_broker(name="before").start()
    assert recorded(broker.data / "meta.db") == f"{broker.data.as_uri()}/./objects"
    broker.stop()
    broker.data.rename(tmp_path / "after")
    make_broker(name="after").start()


def test_a_restored_cluster_has_the_store_that_was_taken_over(make_broker: Make, tmp_path: Path) -> None:
    bucket, meta = f"file://{tmp_path}/bucket", f"sqlite:///{tmp_path}/restored.db"
    first = make_broker("--store", bucket, name="first").start()
    first.stop()
    (tmp_path / "bucket").rename(tmp_path / "copy")
    assert main(["restore", "--from", f"file://{tmp_path}/copy", "--meta", meta, "--apply"]) == 0
    assert recorded(tmp_path / "restored.db") == (tmp_path / "copy").as_uri()
    assert "the cluster's is" in refusal(make_broker("--store", bucket, "--meta", meta, name="wrong"))
    make_broker("--store", f"file://{tmp_path}/copy", "--meta", meta, name="second").start()


def test_a_second_cluster_on_the_store_of_a_first_one_is_refused_and_leaves_its_database_to_a_restore(
    make_broker: Make, tmp_path: Path
) -> None:
    bucket, meta = ("--store", f"file://{tmp_path}/bucket"), f"sqlite:///{tmp_path}/new.db"
    first = make_broker(*bucket, name="first").start()
    with closing(sqlite3.connect(first.data / "meta.db")) as conn:
        ((cluster_id,),) = conn.execute("SELECT cluster_id FROM cluster").fetchall()
    second = make_broker(*bucket, "--meta", meta, name="second")
    line = refusal(second)
    assert f"the store file://{tmp_path}/bucket belongs to cluster {cluster_id}, and the database of --meta is" in line
    assert "Give --store another prefix; or the --meta of cluster" in line
    assert not second.data.exists()
    first.stop()
    assert main(["restore", "--from", f"file://{tmp_path}/bucket", "--meta", meta, "--apply"]) == 0
    second.start()
    assert "was restored from this one" in refusal(first)

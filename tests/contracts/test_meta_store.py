"""The cluster's object store, as its row keeps it."""

from sqlalchemy import Connection, text

from tiered.meta import cluster
from tiered.meta.engine import Database

pytest_plugins = ["tests.meta_databases"]


def test_the_first_store_is_the_clusters_and_stays_it(database: Database) -> None:
    database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="one", now_ms=1))
    assert database.run_sync(lambda conn: cluster.claim_store(conn, "s3://bucket/a")) == "s3://bucket/a"
    assert database.run_sync(lambda conn: cluster.claim_store(conn, "s3://bucket/b")) == "s3://bucket/a"


def test_a_cluster_of_an_earlier_version_takes_the_store_of_the_next_broker(database: Database) -> None:
    """The revision leaves the column empty."""

    def upgraded(conn: Connection) -> None:
        cluster.ensure(conn, cluster_id="one", now_ms=1)
        conn.execute(text("UPDATE cluster SET store = NULL"))

    database.run_sync(upgraded)
    assert database.run_sync(lambda conn: cluster.claim_store(conn, "s3://bucket/b")) == "s3://bucket/b"

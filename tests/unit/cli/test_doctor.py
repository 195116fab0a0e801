"""What the doctor reads of the system, and what it keeps to itself."""

import argparse
import os
import socket
from pathlib import Path

import pytest

from tests.unit.cold.verified_store import make_store
from tiered.broker.host.data_folder import OWNER_FILE
from tiered.cli.doctor.broker import verdict_on_health
from tiered.cli.doctor.disk import mount_of, owner_of
from tiered.cli.doctor.examination import hiding, secrets_of
from tiered.cli.doctor.findings import Situation, Status
from tiered.cli.doctor.machine import user_of
from tiered.cli.doctor.sql import sql
from tiered.cli.doctor.store import store as store_area
from tiered.config import load_serve_options

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,nobarrier
22 21 0:20 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1g
23 22 0:21 / /tmp/with\\040space rw - nfs4 server:/export rw,vers=4.2
24 21 0:22 / /tm rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "point"),
    [
        ("/var/lib", "ext4", "/"),
        ("/tmp", "tmpfs", "/tmp"),
        ("/tmp/x/y", "tmpfs", "/tmp"),
        ("/tmp/with space/x", "nfs4", "/tmp/with space"),
        ("/tm/x", "xfs", "/tm"),
    ],
)
def test_a_folder_is_on_the_innermost_mount_above_it(folder: str, kind: str, point: str) -> None:
    found = mount_of(Path(folder), MOUNTS)
    assert found is not None
    assert (found.kind, found.point) == (kind, point)


def test_options_of_the_mount_and_of_the_file_system_are_both_seen() -> None:
    found = mount_of(Path("/var"), MOUNTS)
    assert found is not None
    assert {"relatime", "nobarrier"} <= found.options


def test_secrets_of_urls_and_of_the_environment_are_hidden_wherever_they_stand() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "s3cret/key", "PGPASSWORD": "", "HOME": "/root"}
    hide = hiding(secrets_of(["postgresql://u:p%40ss@h/db", "postgresql://u:p@h/db", "file:///x"], environ))
    assert hide("p%40ss p@ss s3cret/key /root h") == "*** *** *** /root h"
    assert hide("postgresql://u:p@h/db is up") == "postgresql://u***h/db is up"


def test_who_listens_on_a_port_is_named_without_its_arguments() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = user_of(listener.getsockname()[1])
    assert found is not None
    assert found.endswith(f"(process {os.getpid()})")
    assert "pytest" not in found.removesuffix(")").split("(")[0].split()[1:]
    assert user_of(1) is None


def replica(tmp_path: Path, store: Path) -> Situation:
    arguments = argparse.Namespace(read_only=True, data=str(tmp_path / "data"), store=store.as_uri())
    return Situation(options=load_serve_options(arguments, {}, {}), bootstrap=None, may_write=True)


def test_a_bucket_is_only_read_where_a_replica_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    made = make_store(tmp_path / "bucket", tmp_path / "logs", segments=1)
    before = sorted(made.root.rglob("*"))
    (found,) = store_area(replica(tmp_path, made.root))
    assert (found.status, found.message) == (Status.OK, "the bucket of cluster cluster-1 can be read: 1 topic")
    assert sorted(made.root.rglob("*")) == before
    (found,) = store_area(replica(tmp_path, tmp_path / "other"))
    assert found.status is Status.FAIL
    assert "there is no cluster's checkpoint in file://" in found.message
    assert not (tmp_path / "other").exists()


def test_a_replica_is_not_asked_for_a_catalogue(tmp_path: Path) -> None:
    (found,) = sql(replica(tmp_path, tmp_path))
    assert found.status is Status.OK
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "{"])
def test_an_owner_file_that_is_no_object_is_a_finding(tmp_path: Path, text: str) -> None:
    (tmp_path / OWNER_FILE).write_text(text)
    first, *_ = owner_of(tmp_path, 1)
    assert first.status is Status.FAIL
    assert f"{tmp_path / OWNER_FILE} cannot be read" in first.message


@pytest.mark.parametrize(
    ("health", "message"),
    [
        ({"store_trouble": "denied", "store_away": False}, "the object store is not as it should be: denied"),
        ({"sql_away": True}, "the metadata store does not answer"),
        ({"under_min_isr_partitions": 8}, "8 partitions have fewer replicas in sync than min.insync.replicas"),
        ({"held_back_ms": 219_000}, "an open transaction has kept readers of committed records waiting for 219 s"),
    ],
)
def test_what_serves_and_must_not_stay_so_is_a_warning(health: dict[str, object], message: str) -> None:
    result = verdict_on_health("readiness", "broker 2", {"serving": True, **health})
    assert result.status is Status.WARN
    assert message in result.message
    assert result.advice


def test_a_broker_of_which_nothing_is_wrong_is_well() -> None:
    health = {"serving": True, "held_back_ms": 59_000, "store_trouble": None, "under_min_isr_partitions": 0}
    assert verdict_on_health("readiness", "broker 2", health).status is Status.OK

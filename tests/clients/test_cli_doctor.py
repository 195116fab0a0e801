"""`tiered doctor`: it finds what is wrong, says what to do about it, and leaves everything as it was."""

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from tests.broker_process import BrokerProcess
from tests.fault_s3.moto_server import BUCKET, moto_s3, store_url
from tests.support.command_line import Tiered
from tiered.cli.doctor.examination import examined
from tiered.cli.doctor.findings import CheckResult, Situation, Status, ok
from tiered.config import load_serve_options

pytest_plugins = ["tests.postgres"]

SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Started by itself: who holds a port is told by a process's own command line, which no fork has."""
    process = BrokerProcess(tmp_path_factory.mktemp("doctor") / "data", prefix=["env"]).start()
    yield process
    process.ensure_stopped()


@pytest.fixture(scope="module")
def tiered(broker: BrokerProcess) -> Tiered:
    return Tiered(broker)


def serve_options(broker: BrokerProcess) -> list[str]:
    http = broker.http.removeprefix("http://")
    return ["--data", str(broker.data), "--kafka", broker.bootstrap, "--http", http]


class Doctor:
    """Runs it without a broker's address in the environment, as on a new machine."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(environ or {})

    def checks(self, *argv: str, code: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
        asked = Tiered.__new__(Tiered)
        asked.environ = {"TIERED_BOOTSTRAP": "", "TIERED_HTTP": "", **self._environ}
        done = asked.run("doctor", *argv, "--json", code=code)
        assert SECRET.encode() not in done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["ok"] == (code == 0)
        for each in found["checks"]:
            assert each["message"]
            assert (each["advice"] is None) == (each["status"] == "ok"), each
        return {(each["area"], each["check"]): each for each in found["checks"]}


@pytest.fixture
def doctor() -> Doctor:
    return Doctor()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with moto_s3() as url:
        yield url


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_healthy_broker_has_no_failure_and_is_left_as_it_was(
    tiered: Tiered, doctor: Doctor, broker: BrokerProcess
) -> None:
    tiered.out("topics", "create", "there")
    before = everything_in(broker.data)
    found = doctor.checks(*serve_options(broker), "--write")
    # The broker itself goes on writing beside it.
    assert not [path for path in everything_in(broker.data) - before if "doctor" in path or "probes" in path]
    assert tiered.out("topics", "list", "-q") == b"there\n"
    assert "serves it" in found["disk", "folder"]["message"]
    assert f"process {broker.pid}" in found["disk", "folder"]["message"]
    assert found["sql", "tables"]["status"] == "ok"
    assert found["store", "create-only"]["measured"] == {"create_only": True}
    assert found["store", "deleting"]["status"] == "ok"
    assert found["broker", "kafka"]["measured"]["running"] is True
    assert found["broker", "http"]["status"] == "ok"
    assert found["broker", "round trip"]["status"] == "ok"
    assert "in use by a broker" in found["limits", "--kafka"]["message"]


def test_before_the_first_start_nothing_is_created(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor.checks("--data", str(tmp_path / "not" / "yet"), "--kafka", "127.0.0.1:1", "--http", "127.0.0.1:0")
    assert list(tmp_path.iterdir()) == []
    assert found["disk", "folder"]["measured"] == {"exists": False}
    assert found["sql", "place"]["measured"] == {"exists": False}
    assert found["broker", "kafka"]["measured"] == {"running": False}


def test_text_has_a_line_for_each_check_and_a_verdict(tiered: Tiered, broker: BrokerProcess) -> None:
    lines = tiered.out("doctor", *serve_options(broker), "--only", "disk", "--only", "sql").decode().splitlines()
    assert {tuple(line.split()[:2]) for line in lines[:-2]} <= {("ok", "disk"), ("warn", "disk"), ("ok", "sql")}
    assert lines[-1].split(", ")[1].startswith("none failed")


def test_a_folder_of_another_broker_is_a_failure_that_names_it(doctor: Doctor, broker: BrokerProcess) -> None:
    found = doctor.checks(*serve_options(broker), "--broker-id", "7", "--only", "disk", code=1)
    assert "belongs to broker 1, and --broker-id is 7" in found["disk", "folder"]["message"]
    assert "--broker-id 1" in found["disk", "folder"]["advice"]


def test_a_folder_that_cannot_be_is_a_failure(doctor: Doctor) -> None:
    found = doctor.checks("--data", "/dev/null/data", "--only", "disk", code=1)
    assert "/dev/null is no folder" in found["disk", "folder"]["message"]


def test_a_port_that_something_else_has_is_said_with_its_name(doctor: Doctor, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        found = doctor.checks("--data", str(tmp_path), "--kafka", where, "--only", "limits")
    assert found["limits", "--kafka"]["status"] == "warn"
    assert f"(process {os.getpid()})" in found["limits", "--kafka"]["message"]


def test_every_listener_has_its_port_looked_at(doctor: Doctor, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        two = ("--listener", "A=PLAINTEXT://127.0.0.1:0", "--listener", f"B=PLAINTEXT://127.0.0.1:{port}")
        found = doctor.checks("--data", str(tmp_path), *two, "--only", "limits")
    assert found["limits", "--listener A"]["status"] == "ok"
    assert found["limits", "--listener B"]["status"] == "warn"
    assert f"127.0.0.1:{port} is in use" in found["limits", "--listener B"]["message"]


def test_a_broker_that_must_run_and_does_not_is_a_failure(doctor: Doctor, tmp_path: Path) -> None:
    argv = ("--data", str(tmp_path), "--only", "broker", "-b", "127.0.0.1:1")
    assert "does not answer" in doctor.checks(*argv, code=1)["broker", "kafka"]["message"]


def test_an_http_port_in_place_of_kafkas_is_a_failure(doctor: Doctor, broker: BrokerProcess, tmp_path: Path) -> None:
    argv = ("--data", str(tmp_path), "--only", "broker", "-b", broker.http.removeprefix("http://"))
    assert "is no Kafka broker" in doctor.checks(*argv, code=1)["broker", "kafka"]["message"]


def test_an_area_that_hangs_is_left_behind_and_what_it_found_before_stays() -> None:
    never = threading.Event()

    def hangs(_situation: Situation) -> Iterator[CheckResult]:
        yield ok("first", "it is there")
        never.wait()

    options = load_serve_options(object(), {})
    found = examined(hangs, Situation(options=options, bootstrap=None, may_write=False), timeout_s=0.2)
    assert [each.status for each in found] == [Status.OK, Status.FAIL]
    assert "this hangs after 'first'" in found[1].message
    never.set()


# PostgreSQL


def test_a_postgresql_whose_commits_are_not_durable_is_the_failure(
    doctor: Doctor, tmp_path: Path, postgres_url: str
) -> None:
    argv = ("--data", str(tmp_path), "--meta", postgres_url, "--only", "sql")
    found = doctor.checks(*argv, code=1)  # The tests' own server runs without fsync.
    assert [check for check, each in found.items() if each["status"] == "fail"] == [("sql", "durability")]
    assert "fsync is off" in found["sql", "durability"]["message"]
    assert "fsync = on" in found["sql", "durability"]["advice"]
    assert found["sql", "writing"]["status"] == "ok"
    assert abs(found["sql", "clock"]["measured"]["off_ms"]) < 1_000
    assert found["sql", "tables"]["measured"] == {"revision": None}


def changed(url: str, *statements: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)
    engine.dispose()


def test_a_postgresql_that_takes_no_writes_is_a_failure_that_names_the_cause(
    doctor: Doctor, tmp_path: Path, postgres_url: str
) -> None:
    changed(postgres_url, f"ALTER DATABASE {make_url(postgres_url).database} SET default_transaction_read_only = on")
    found = doctor.checks("--data", str(tmp_path), "--meta", postgres_url, "--only", "sql", code=1)
    assert "is read-only" in found["sql", "access"]["message"]
    assert "primary" in found["sql", "access"]["advice"]


def test_a_user_without_rights_is_a_failure_that_says_so(doctor: Doctor, tmp_path: Path, postgres_url: str) -> None:
    changed(postgres_url, "DROP ROLE IF EXISTS doctor_guest", "CREATE ROLE doctor_guest LOGIN")
    guest = make_url(postgres_url).set(username="doctor_guest").render_as_string(hide_password=False)
    found = doctor.checks("--data", str(tmp_path), "--meta", guest, "--only", "sql", code=1)
    assert "permission denied for schema public" in found["sql", "access"]["message"]
    assert "Grant" in found["sql", "access"]["advice"]


def test_a_postgresql_that_is_away_is_said_soon_and_without_its_password(doctor: Doctor, tmp_path: Path) -> None:
    url = f"postgresql://user:{SECRET}@127.0.0.1:1/db"
    found = doctor.checks("--data", str(tmp_path), "--meta", url, "--only", "sql", code=1)
    assert "127.0.0.1:1" in found["sql", "access"]["message"]
    assert "pg_hba.conf" in found["sql", "access"]["advice"]


def test_a_file_that_is_no_catalogue_is_a_failure(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    path.write_bytes(b"no database at all" * 100)
    found = doctor.checks("--data", str(tmp_path), "--meta", f"sqlite:///{path}", "--only", "sql", code=1)
    assert "not a database" in found["sql", "access"]["message"]
    assert path.read_bytes() == b"no database at all" * 100


# S3


def test_a_bucket_is_written_read_and_left_empty(doctor: Doctor, tmp_path: Path, s3: str) -> None:
    found = doctor.checks("--data", str(tmp_path), "--store", store_url(s3, "doctor"), "--only", "store")
    assert found["store", "access"]["status"] == "ok"
    assert found["store", "clock"]["status"] == "ok"
    assert found["store", "create-only"]["status"] == "ok"
    assert found["store", "listing"]["status"] == "ok"
    assert found["store", "deleting"]["status"] == "ok"
    client = boto3.session.Session().client("s3", endpoint_url=s3, region_name="us-east-1")
    assert client.list_objects_v2(Bucket=BUCKET, Prefix="doctor").get("KeyCount") == 0
    client.close()


def test_a_bucket_that_is_missing_is_a_failure_that_says_so(doctor: Doctor, tmp_path: Path, s3: str) -> None:
    url = f"s3://no-such-bucket/x?endpoint_url={s3}"
    found = doctor.checks("--data", str(tmp_path), "--store", url, "--only", "store", code=1)
    assert "Create the bucket" in found["store", "access"]["advice"]


def test_a_store_that_is_away_is_said_without_its_key(tmp_path: Path) -> None:
    url = "s3://bucket/x?endpoint_url=http://127.0.0.1:1"
    environ = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    found = Doctor(environ).checks("--data", str(tmp_path), "--store", url, "--only", "store", code=1)
    assert "endpoint_url" in found["store", "access"]["advice"]

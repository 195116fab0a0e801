"""`tiered users`: who is made can log in, and no password is shown; the first one comes without a broker."""

import json
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.support.command_line import Tiered
from tiered.cli import main
from tiered.meta import security
from tiered.meta.engine import Database
from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.mechanism import ScramMechanism


@pytest.fixture(scope="module")
def tiered(broker: BrokerProcess) -> Tiered:
    return Tiered(broker)


def test_users_are_made_listed_and_deleted(tiered: Tiered) -> None:
    assert tiered.out("users", "list") == b"no users; `tiered users create NAME` makes one\n"
    output = tiered.out("users", "create", "alice", lines=b"hunter2\n")
    assert output == b"user alice created, and can log in\n"
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    tiered.out("users", "create", "bob", *both, "--iterations", "4096", lines=b"hunter2")
    assert [line.split() for line in tiered.out("users", "list").decode().splitlines()] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["alice", "SCRAM-SHA-512", "8192"],
        ["bob", "SCRAM-SHA-256", "4096"],
        ["bob", "SCRAM-SHA-512", "4096"],
    ]
    output = tiered.out("users", "set-password", "bob", lines=b"hunter3")
    assert output == b"user bob has this password now\n"
    assert tiered.json("users", "list")[1] == {
        "user": "bob", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
    }  # fmt: skip
    tiered.out("users", "delete", "bob", "--mechanism", "SCRAM-SHA-256")
    tiered.out("users", "delete", "alice")
    assert [each["user"] for each in tiered.json("users", "list")] == ["bob"]
    assert "no user alice" in tiered.failure("users", "delete", "alice")


def test_a_user_who_exists_keeps_the_password_when_another_is_made_of_that_name(tiered: Tiered) -> None:
    tiered.out("users", "create", "dave", "--iterations", "4096", lines=b"hunter2\n")
    refusal = tiered.failure("users", "create", "dave", "--mechanism", "SCRAM-SHA-256", lines=b"hunter3\n")
    assert "user dave exists already: nothing was changed. `tiered users set-password dave`" in refusal
    assert {"user": "dave", "mechanisms": {"SCRAM-SHA-512": 4096}} in tiered.json("users", "list")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    tiered.out("users", "set-password", "dave", *both, lines=b"hunter3\n")
    assert {"user": "dave", "mechanisms": dict.fromkeys(both[1::2], 8192)} in tiered.json("users", "list")
    refusal = tiered.failure("users", "set-password", "davy", lines=b"hunter3\n")
    assert "there is no user davy (did you mean dave?)" in refusal
    tiered.out("users", "delete", "dave")


def test_what_is_no_password_is_said_without_it(tiered: Tiered, tmp_path: Path) -> None:
    for lines in (b"", b"\n", b"\xff\n", b"p" * 2000):
        assert "password" in tiered.failure("users", "create", "carol", lines=lines, code=2)
    missing = str(tmp_path / "none")
    assert "cannot read" in tiered.failure("users", "create", "carol", "--password-file", missing, code=2)
    assert "4096 to 16384" in tiered.failure("users", "create", "carol", "--iterations", "1", lines=b"x", code=2)


def is_password_of_the_only_user(meta: str, password: str) -> bool:
    database = Database.open(meta)
    _, row = database.run_sync(security.load_all).credentials
    database.close_sync()
    kept = scram.ScramCredential(
        salt=row.salt, stored_key=row.stored_key, server_key=row.server_key, iterations=row.iterations
    )
    return scram.is_password(ScramMechanism.SHA_512, kept, password)


def test_the_first_user_is_made_before_any_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta, password = f"sqlite:///{tmp_path}/data/meta.db", tmp_path / "password"
    password.write_text("hunter2\n")
    assert main(["users", "create", "admin", "--meta", meta, "--password-file", str(password)]) == 0
    assert main(["users", "list", "--meta", meta, "--json"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown.partition("\n")[2]) == [{"user": "admin", "mechanisms": {"SCRAM-SHA-512": 8192}}]
    assert "hunter2" not in shown
    assert is_password_of_the_only_user(meta, "hunter2")
    password.write_text("hunter3\n")
    assert main(["users", "create", "admin", "--meta", meta, "--password-file", str(password)]) == 1
    assert is_password_of_the_only_user(meta, "hunter2")
    assert main(["users", "set-password", "admin", "--meta", meta, "--password-file", str(password)]) == 0
    assert is_password_of_the_only_user(meta, "hunter3")
    assert main(["users", "delete", "admin", "--meta", meta]) == 0
    assert main(["users", "delete", "admin", "--meta", meta]) == 1

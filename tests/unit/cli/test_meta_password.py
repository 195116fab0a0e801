"""The catalogue's password by reference: where it may stand, and what is said when it is not there."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from sqlalchemy.engine import make_url

from tests.broker_process import free_port
from tests.fault_s3.moto_server import moto_s3
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.meta_password import meta_url, password_argument
from tiered.errors import InvalidConfig

META = "postgresql://tiered@db.example:5432/tiered?sslmode=verify-full"
HARD = "a:b@c/d?e#f%41 \\ü"
"""Every character that means something in a URL."""


def asked(reference: str | None, meta: str = META) -> str:
    parser = argparse.ArgumentParser()
    parser.add_argument("--meta")
    password_argument(parser)
    words = [] if reference is None else ["--meta-password", reference]
    return meta_url(parser.parse_args(["--meta", meta, *words]))


def password_in(url: str) -> str | None:
    parsed = make_url(url)
    assert parsed._replace(password=None) == make_url(META)
    return parsed.password


def test_without_a_reference_the_url_stays_as_it_is() -> None:
    assert asked(None) == META


def test_a_file_and_a_variable_are_read_whatever_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text(HARD + "\n")
    assert password_in(asked(f"file:{tmp_path / 'password'}")) == HARD
    monkeypatch.setenv("CATALOGUE", HARD)
    assert password_in(asked("env:CATALOGUE")) == HARD


def test_a_password_itself_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="never the password itself") as raised:
        asked("hunter2")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("sqlite:////var/lib/meta.db", "knows no passwords"),
        ("postgresql://tiered:hunter2@db/tiered", "give one of them"),
        ("postgresql://tiered@db/tiered?password=hunter2", "give one of them"),
        ("hunter2", "cannot be parsed"),
    ],
)
def test_a_url_that_takes_none_is_refused_and_not_shown(meta: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOGUE", "x")
    with pytest.raises(UsageError, match=said) as raised:
        asked("env:CATALOGUE", meta)
    assert "hunter2" not in str(raised.value)


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="--meta-password names the environment variable NOT_SET"):
        asked("env:NOT_SET")
    with pytest.raises(InvalidConfig, match=r"--meta-password names the file .*nowhere, which cannot be read"):
        asked(f"file:{tmp_path / 'nowhere'}")
    monkeypatch.setenv("CATALOGUE", "")
    with pytest.raises(InvalidConfig, match="nothing in it"):
        asked("env:CATALOGUE")


@pytest.fixture
def secrets_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of moto's, which boto3 asks as long as the test lasts; nothing but an ARN says the region."""
    with moto_s3() as url:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", url)
        yield boto3.session.Session(region_name="eu-central-1").client("secretsmanager")


@pytest.mark.parametrize("text", [HARD, json.dumps({"username": "tiered", "password": HARD}), "12345", '"quoted"'])
def test_secrets_manager_is_asked_where_the_arn_says(secrets_manager: Any, text: str) -> None:
    arn = secrets_manager.create_secret(Name=f"tiered/{uuid4()}", SecretString=text)["ARN"]
    expected = HARD if HARD[:3] in text else text
    assert password_in(asked(f"aws-secret:{arn}")) == expected


def test_a_secret_that_holds_no_password_is_said_and_not_shown(secrets_manager: Any) -> None:
    other = secrets_manager.create_secret(Name="other", SecretString='{"token": "hunter2"}')["ARN"]
    with pytest.raises(InvalidConfig, match="JSON without `password`") as raised:
        asked(f"aws-secret:{other}")
    assert "hunter2" not in str(raised.value)
    binary = secrets_manager.create_secret(Name="binary", SecretBinary=b"hunter2")["ARN"]
    with pytest.raises(InvalidConfig, match="is binary"):
        asked(f"aws-secret:{binary}")
    with pytest.raises(InvalidConfig, match="ResourceNotFoundException"):
        asked(f"aws-secret:{other}-gone")


def test_a_secrets_manager_that_is_away_is_a_failure_and_no_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(CommandFailed, match="cannot be asked for arn:aws:secretsmanager:eu-central-1:"):
        asked("aws-secret:arn:aws:secretsmanager:eu-central-1:123456789012:secret:tiered-abcdef")

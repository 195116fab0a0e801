"""A broker that cannot start says in one line what is in its way, and what to do about it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, free_port
from tests.support.topics import create


def refusal(process: BrokerProcess) -> str:
    with pytest.raises(AssertionError, match="did not get ready"):
        process.start()
    (line,) = process.log().splitlines()
    return line


@pytest.mark.parametrize("option", ["--kafka", "--http"])
def test_a_port_that_is_taken_is_said_with_its_address_and_option(
    broker: BrokerProcess, make_broker: Callable[..., BrokerProcess], option: str
) -> None:
    said = refusal(make_broker(option, broker.bootstrap))
    assert f"cannot listen on {broker.bootstrap}: something listens there already" in said
    assert f"give another HOST:PORT with {option}" in said


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_two_doors_with_one_address_are_told_apart(make_broker: Callable[..., BrokerProcess], host: str) -> None:
    port = free_port()
    broker = make_broker("--kafka", f"127.0.0.1:{port}", "--http", f"{host}:{port}", "--insecure")
    with pytest.raises(AssertionError, match="did not get ready"):
        broker.start()
    said = broker.log().splitlines()[-1]  # Behind the warnings about --insecure.
    assert f"and listener PLAINTEXT have one address, 127.0.0.1:{port}: give each a port of its own" in said


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_file_in_the_place_of_the_data_folder_is_named_for_what_it_is(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path, below: str
) -> None:
    (tmp_path / "taken").write_text("mine")
    said = refusal(make_broker("--data", str(tmp_path / "taken" / below)))
    assert f"cannot be a folder, for {tmp_path / 'taken'} is a file: choose another --data" in said
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    "refused_for", [["--kafka", "taken"], ["--meta", "sqlite:///no/such/folder/meta.db"], ["--read-only"]]
)
def test_a_refused_start_leaves_no_folder_behind_that_was_not_there(
    broker: BrokerProcess, make_broker: Callable[..., BrokerProcess], tmp_path: Path, refused_for: list[str]
) -> None:
    options = [broker.bootstrap if each == "taken" else each for each in refused_for]
    if refused_for == ["--read-only"]:
        options += ["--kafka", broker.bootstrap, "--store", f"file://{tmp_path}/bucket"]
    (tmp_path / "there").mkdir()
    refusal(make_broker("--data", str(tmp_path / "there" / "new" / "data"), *options))
    assert list((tmp_path / "there").iterdir()) == []


def test_a_catalogue_that_is_no_database_is_said_without_a_traceback(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.db").write_text("junk")
    said = refusal(make_broker())
    assert f"{tmp_path / 'data' / 'meta.db'} is not available (file is not a database)" in said


def test_an_older_copy_of_its_catalogue_is_refused_and_the_newest_is_gone_on_with(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker, catalogue = make_broker(), tmp_path / "data" / "meta.db"
    broker.start().stop()
    shutil.copy(catalogue, tmp_path / "older.db")
    broker.start()
    create(broker, "orders")
    assert broker.stop() == 0
    shutil.copy(catalogue, tmp_path / "newest.db")
    shutil.copy(tmp_path / "older.db", catalogue)
    with pytest.raises(AssertionError, match="did not get ready"):
        broker.start()
    said = broker.log().splitlines()[-1]
    assert "tiered serve: the metadata store has lost commits" in said
    assert "docs/operations.md, When the database went back" in said
    shutil.copy(tmp_path / "newest.db", catalogue)
    broker.start()
    assert broker.segments("orders")["log_end_offset"] == 0

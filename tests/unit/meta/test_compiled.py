"""Compiled statements: one cache for all catalogues of a process, and none for two kinds of database."""

from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.engine import Dialect

from tests.catalogue import open_ready
from tiered.meta.compiled import SHARED, CompiledStatements


def test_a_second_catalogue_compiles_nothing_again(tmp_path: Path) -> None:
    open_ready(f"sqlite:///{tmp_path}/first.db").close_sync()
    of_the_first = len(SHARED)
    assert of_the_first > 0
    open_ready(f"sqlite:///{tmp_path}/second.db").close_sync()
    assert len(SHARED) == of_the_first


def test_what_was_compiled_for_one_kind_of_database_serves_no_other() -> None:
    found, newer = CompiledStatements(), _dialect("sqlite")
    newer.server_version_info = (99, 0, 0)
    found[_dialect("sqlite"), "statement"] = "compiled"
    assert found[_dialect("sqlite"), "statement"] == "compiled"
    for other in (_dialect("postgresql+psycopg"), newer):
        with pytest.raises(KeyError):
            found[other, "statement"]


def _dialect(name: str) -> Dialect:
    made: Dialect = make_url(f"{name}://").get_dialect()()
    return made

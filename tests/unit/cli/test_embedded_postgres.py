"""The folder of the embedded PostgreSQL's socket, where its name can be guessed by others of the machine."""

from pathlib import Path

import pytest

from tiered.cli.failure import CommandFailed
from tiered.cli.local_cluster.embedded_postgres import _require_own


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

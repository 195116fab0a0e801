"""docs/wire.md names tests that exist."""

import re

from tests.house.commands import ROOT


def test_every_test_that_the_document_names_exists() -> None:
    known = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/wire.md").read_text()))
    assert named
    assert not named - known, f"docs/wire.md names tests that are gone: {sorted(named - known)}"

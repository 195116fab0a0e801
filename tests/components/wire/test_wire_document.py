"""docs/wire.md names tests that exist and the APIs that are served."""

import re
from pathlib import Path

from tiered.server.kafka.apis import served_apis

HERE = Path(__file__).parents[1]
DOCUMENT = (HERE.parents[1] / "docs" / "wire.md").read_text()


def test_every_test_that_the_document_names_exists() -> None:
    known = {name for path in HERE.glob("*/test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named
    assert not named - known


def test_the_document_lists_what_is_served() -> None:
    listed = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) to (\d+)", DOCUMENT, re.MULTILINE)
    served = {(str(api.key), api.name, str(api.min_version), str(api.max_version)) for api in served_apis()}
    assert set(listed) == served

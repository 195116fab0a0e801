"""Stubs and tables say what the code says."""

from pathlib import Path

import pytest

from tests.house.document_tables import DOCS, METRIC_ROW, METRICS
from tests.house.generated import generated, stale_stubs


def test_what_is_made_of_the_code_is_what_the_code_makes() -> None:
    differ = [path.name for path, text in generated().items() if not path.exists() or path.read_text() != text]
    assert not differ, f"made of the code: run `make generated`, look at the difference and commit it: {differ}"
    assert not stale_stubs(), "of APIs that are not served: `make generated` takes them out"


def test_every_metric_of_a_broker_has_a_row() -> None:
    """Those of a read replica that are a broker's too need no second one."""
    without = sorted(METRICS[DOCS / "metrics.md"].keys() - set(METRIC_ROW.findall((DOCS / "metrics.md").read_text())))
    assert not without, (
        "no row in docs/metrics.md: write | `name` | with the name alone into the table where it belongs, then run "
        f"`make generated`, which writes the rest: {without}"
    )


@pytest.mark.parametrize("page", METRICS, ids=lambda page: page.name)
def test_every_row_is_of_a_metric_and_the_only_one(page: Path) -> None:
    rows = METRIC_ROW.findall(page.read_text())
    unknown = sorted(set(rows) - METRICS[page].keys())
    assert not unknown, f"no metrics, but docs/{page.name} has rows of them: correct the names: {unknown}"
    assert len(rows) == len(set(rows)), f"docs/{page.name} has two rows of one metric: take one out"

"""The tables of metrics in docs say what `/metrics` says: names, kinds, labels and help texts.

Where a row stands is the document's; what is in it is made of the description beside the number. A new metric is a row
with its name alone in the table where it belongs: `python -m tests.house.test_metrics_document` writes the rest.
"""

import re
from pathlib import Path

import pytest

from tiered.metrics import Metric
from tiered.server.http import read_only
from tiered.server.http.metrics import broker

DOCS = Path(__file__).resolve().parents[2] / "docs"
TABLES = {
    DOCS / "metrics.md": {each.name: each for each in broker.METRICS},
    DOCS / "read-replicas.md": {each.name: each for each in read_only.METRICS},
}
_ROW = re.compile(r"^\| `([a-z_]+)` \|(?: (?:counter|gauge|histogram) \|.*)?$", re.MULTILINE)


def row_of(metric: Metric) -> str:
    labels = "".join(f"`{each}` " for each in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels}| {metric.documentation} |"


def written(page: Path) -> str:
    """The page with each row of a metric made anew."""
    return _ROW.sub(lambda match: row_of(TABLES[page][match[1]]), page.read_text())


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_tables_say_what_the_metrics_say_of_themselves(page: Path) -> None:
    assert page.read_text() == written(page), "run `python -m tests.house.test_metrics_document`"


def test_every_metric_of_a_broker_has_one_row() -> None:
    rows = _ROW.findall((DOCS / "metrics.md").read_text())
    assert sorted(rows) == sorted(each.name for each in broker.METRICS)


if __name__ == "__main__":
    for each in TABLES:
        each.write_text(written(each))

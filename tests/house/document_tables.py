"""The tables in docs that say what the code says: metrics, served APIs and the rights that each needs.

Where the row of a metric stands is the document's; what is in it is made of the description beside the number. A new
metric is a row with its name alone in the table where it belongs. The tables of APIs are made as a whole.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from tiered.metrics import Metric
from tiered.server.http import read_only
from tiered.server.http.metrics import broker
from tiered.server.kafka.apis import served_apis
from tiered.server.kafka.dispatch import Api

DOCS = Path(__file__).resolve().parents[2] / "docs"
METRICS = {
    DOCS / "metrics.md": {each.name: each for each in broker.METRICS},
    DOCS / "read-replicas.md": {each.name: each for each in read_only.METRICS},
}
METRIC_ROW = re.compile(r"^\| `([a-z_]+)` \|(?: (?:counter|gauge|histogram) \|.*)?$", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Each page with its tables made anew."""
    apis = sorted(served_apis(), key=lambda api: api.key)
    return {
        **{page: with_metrics(page) for page in METRICS},
        DOCS / "wire.md": with_table(DOCS / "wire.md", "| key | API | versions |", map(served, apis)),
        DOCS / "security-rights.md": with_table(
            DOCS / "security-rights.md", "| API | operation and resource |", rights(apis)
        ),
    }


def with_metrics(page: Path) -> str:
    """A row of no metric stays as it is, for a test to name."""
    known = METRICS[page]
    return METRIC_ROW.sub(lambda row: row_of(known[row[1]]) if row[1] in known else row[0], page.read_text())


def row_of(metric: Metric) -> str:
    labels = "".join(f"`{each}` " for each in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels}| {metric.documentation} |"


def with_table(page: Path, head: str, rows: Iterable[str]) -> str:
    table = re.compile(rf"(?<=^{re.escape(head)}\n)(\|[-|]+\|\n)(?:\|.*\n)*", re.MULTILINE)
    made = "".join(f"{row}\n" for row in rows)
    text, found = table.subn(lambda old: old[1] + made, page.read_text())
    assert found == 1, f"{page.name} has no table {head}"
    return text


def served(api: Api) -> str:
    first, last = api.versions
    closed = f" (below {api.refuse_below} the connection ends)" if api.refuse_below else ""
    return f"| {api.key} | {api.name} | {first} to {last}{closed} |"


def rights(apis: Iterable[Api]) -> list[str]:
    """APIs that need the same share a row."""
    names: dict[str, list[str]] = {}
    for api in apis:
        names.setdefault(api.rights, []).append(api.name)
    return [f"| {', '.join(each)} | {needed} |" for needed, each in names.items()]

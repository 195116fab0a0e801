"""The tables and pictures of docs/performance.md: `python -m benchmarks.kafka.page bench-results/kafka-STAMP.json …`.

Owns docs/performance-results.json, which has what was measured last of each suite: the results that are named take the
places of those in it. All else is made of that file, by this command and by `make generated`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.kafka.cells import SUITES
from benchmarks.kafka.plots import latencies_svg, ratios_svg
from benchmarks.kafka.report import rows, tables

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "performance-results.json"
_MADE = re.compile(r"(<!-- made of performance-results\.json -->\n).*(<!-- up to here -->\n)", re.DOTALL)


def merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """All suites in the order of the matrix. A later result replaces an earlier one of the same suite, unless cells of
    the earlier one are missing in it."""
    newest: dict[str, Any] = {}
    for document in documents:
        for suite, result in document["suites"].items():
            if suite not in newest or result["runs"].keys() >= newest[suite]["runs"].keys():
                newest[suite] = result
    return {"suites": {suite: newest[suite] for suite in SUITES if suite in newest}}


def pages() -> dict[Path, str]:
    """What is made of the results."""
    suites = json.loads(RESULTS.read_text())["suites"]
    page = DOCS / "performance.md"
    text, made = _MADE.subn(lambda old: f"{old[1]}{tables(suites)}\n{old[2]}", page.read_text())
    assert made == 1, f"{page.name} has no place for the tables"
    found = [row for each in suites.values() for row in rows(each["runs"])]
    images = {"kafka-ratios.svg": ratios_svg(found), "kafka-latencies.svg": latencies_svg(found)}
    return {page: text} | {DOCS / "images" / name: image for name, image in images.items()}


def main(paths: list[str]) -> int:
    documents = [json.loads(Path(path).read_text()) for path in [str(RESULTS), *paths]]
    RESULTS.write_text(json.dumps(merged(documents), indent=0, separators=(",", ":")) + "\n")
    for path, text in pages().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

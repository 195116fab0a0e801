"""What axe-core finds in the view that a console shows."""

import json
from pathlib import Path

import axe_playwright_python

from tests.browser.console import Console

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
WCAG: dict[str, object] = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
CONTRAST: dict[str, object] = {"type": "rule", "values": ["color-contrast"]}


def barriers(console: Console, what: str, rules: dict[str, object]) -> None:
    if not console.evaluate("'axe' in window"):
        console.evaluate(AXE.read_text() + "; undefined")
    found = console.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
        ".then(({violations}) => violations.map(({id, nodes}) => [id, nodes.slice(0, 3).map(node => node.html)]))",
        rules,
    )
    assert found == [], f"{what}: {json.dumps(found, indent=1)}"

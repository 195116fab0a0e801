"""The pictures of docs/spark-guide.md, out of one result of `make bench BENCH_ARGS="--only spark"`.

Owns how they look. Run as `python -m benchmarks.spark_plots bench-results/STAMP.json [FOLDER]`; writes two SVG files,
by default into docs/images.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark_side import CONNECTOR, DECODER, PARQUET, READY, TIERED
from benchmarks.svg import WIDTH, picture, text

_COLOURS = {TIERED: "#0b6e4f", CONNECTOR: "#c2410c", PARQUET: "#64748b", READY: "#a16207", DECODER: "#1d4ed8"}
_LINES = ("#0b6e4f", "#1d4ed8")
_LEFT, _RIGHT = 200, 90


def main(argv: list[str]) -> int:
    medians: dict[str, Any] = json.loads(Path(argv[0]).read_text())["medians"]
    folder = Path(argv[1] if len(argv) > 1 else "docs/images")
    spark = {name.removeprefix("spark: "): sides for name, sides in medians.items() if name.startswith("spark: ")}
    if not spark:
        raise SystemExit(f'{argv[0]} has no measurements with Spark: run make bench BENCH_ARGS="--only spark"')
    (folder / "spark-sides.svg").write_text(sides_svg(spark))
    (folder / "spark-splits.svg").write_text(splits_svg(spark))
    return 0


def sides_svg(spark: dict[str, dict[str, dict[str, float]]]) -> str:
    """Bars: rows a second of each side, scenario below scenario."""
    parts: list[str] = []
    y = 34
    for scenario, sides in spark.items():
        shown = {side: each["rows_per_s"] for side, each in sides.items() if side in _COLOURS}
        most = max(shown.values())
        parts.append(text(12, y, scenario, weight="bold"))
        y += 10
        for side, rate in shown.items():
            width = (WIDTH - _LEFT - _RIGHT) * rate / most
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="16" fill="{_COLOURS[side]}"/>')
            parts.append(text(_LEFT - 8, y + 12, side, anchor="end"))
            parts.append(text(_LEFT + width + 6, y + 12, _short(rate)))
            y += 22
        y += 24
    return picture(y, "Rows a second into Spark's noop sink", parts)


def splits_svg(spark: dict[str, dict[str, dict[str, float]]]) -> str:
    """Lines: rows a second by the number of splits, one panel for each record size, one line for each width."""
    panels: dict[str, list[tuple[str, list[tuple[int, float]]]]] = {}
    for scenario, sides in spark.items():
        size, _, width = scenario.partition(", ")
        points = [
            (int(side.removeprefix(f"{TIERED}, ").split()[0]), each["rows_per_s"])
            for side, each in sides.items()
            if side.startswith(f"{TIERED}, ")
        ]
        panels.setdefault(size, []).append((width, sorted(points)))
    parts: list[str] = []
    top = 30
    for size, lines in panels.items():
        parts += _panel(top, size, lines)
        top += 230
    return picture(top, "Rows a second by the number of splits", parts)


def _panel(top: int, title: str, lines: list[tuple[str, list[tuple[int, float]]]]) -> list[str]:
    left, right, height = 90, WIDTH - 110, 160
    numbers = sorted({number for _, points in lines for number, _ in points})
    most = max(rate for _, points in lines for _, rate in points) * 1.1

    def x(number: int) -> float:
        return left + (right - left) * math.log2(number / numbers[0]) / math.log2(numbers[-1] / numbers[0])

    def y(rate: float) -> float:
        return top + 14 + height * (1 - rate / most)

    parts = [text(12, top, title, weight="bold")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(most / 1.1 * share)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#e2e8f0"/>')
        parts.append(text(left - 8, at + 4, _short(most / 1.1 * share), anchor="end"))
    parts += [text(x(number), top + height + 32, str(number), anchor="middle") for number in numbers]
    for (name, points), colour in zip(lines, _LINES, strict=False):
        path = " ".join(f"{x(number):.1f},{y(rate):.1f}" for number, rate in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(number):.1f}" cy="{y(rate):.1f}" r="3" fill="{colour}"/>' for number, rate in points]
        parts.append(text(right + 8, y(points[-1][1]) + 4, name, colour=colour))
    parts.append(text((left + right) / 2, top + height + 48, "splits", anchor="middle"))
    return parts


def _short(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k" if rate >= 1e3 else f"{rate:.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The pictures of docs/performance.md: ratios to Apache Kafka, and the latencies of both. Pure."""

import math
from collections.abc import Iterable

from benchmarks.kafka.report import Row
from benchmarks.svg import WIDTH, picture, text

_GREEN, _ORANGE, _BLUE = "#0b6e4f", "#c2410c", "#1d4ed8"
_RATE = ("mb_per_s", "answers_per_s")
_CPU = ("broker_cpu_s_per_gb", "broker_cpu_ms", "broker_cpu_percent", "idle_cpu_percent")
_LEFT, _RIGHT, _TOP, _LINE = 356, 24, 64, 22

Lines = dict[str, dict[str, list[float]]]
"""By cell and colour: the numbers of one colour are joined."""


def ratios_svg(found: Iterable[Row]) -> str:
    """Throughput and CPU of each cell, ours as a multiple of Apache Kafka's."""
    lines: Lines = {}
    for row in found:
        if row.ratio and row.metric in _RATE + _CPU:
            lines.setdefault(row.cell, {})[_GREEN if row.metric in _RATE else _BLUE] = [row.ratio]
    words = {_GREEN: "throughput: more is better", _BLUE: "broker's CPU: less is better"}
    return _chart("Ours as a multiple of Apache Kafka's", words, lines, strong=1)


def latencies_svg(found: Iterable[Row]) -> str:
    """From the p50 to the p99 of each cell, for both sides."""
    lines: Lines = {}
    for row in found:
        if row.metric in ("p50_ms", "p99_ms"):
            for colour, side in ((_GREEN, row.ours), (_ORANGE, row.kafkas)):
                lines.setdefault(row.cell, {}).setdefault(colour, []).append(side.median)
    return _chart("Milliseconds, p50 to p99", {_GREEN: "ours", _ORANGE: "Apache Kafka"}, lines)


def _chart(title: str, words: dict[str, str], lines: Lines, *, strong: float | None = None) -> str:
    """A line for each cell, on one logarithmic scale; what the colours mean is above it."""
    values = [value for marks in lines.values() for each in marks.values() for value in each]
    low, high = min(values, default=1) * 0.8, max(values, default=1) * 1.25
    bottom = _TOP + _LINE * len(lines)

    def x(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * math.log(value / low) / math.log(high / low)

    parts = [text(12, 22, title, weight="bold")]
    for at, (colour, meaning) in zip((_LEFT, _LEFT + 186), words.items(), strict=True):
        parts += [_dot(at, 18, colour), text(at + 8, 22, meaning)]
    for tick in ticks(low, high):
        stroke = "#64748b" if tick == strong else "#e2e8f0"
        parts.append(f'<line x1="{x(tick):.1f}" y1="{_TOP - 12}" x2="{x(tick):.1f}" y2="{bottom}" stroke="{stroke}"/>')
        parts.append(text(x(tick), _TOP - 18, f"{tick:g}", anchor="middle"))
    for number, (cell, marks) in enumerate(lines.items()):
        middle = _TOP + _LINE * number + 4
        parts.append(text(_LEFT - 8, middle + 4, cell, anchor="end"))
        parts.append(f'<line x1="{_LEFT}" y1="{middle}" x2="{WIDTH - _RIGHT}" y2="{middle}" stroke="#f1f5f9"/>')
        for y, colour in zip((middle - 4, middle + 4), words, strict=True):
            ends = [x(value) for value in marks.get(colour, ())]
            if len(ends) > 1:
                line = f'x1="{min(ends):.1f}" y1="{y}" x2="{max(ends):.1f}" y2="{y}"'
                parts.append(f'<line {line} stroke="{colour}" stroke-width="2"/>')
            parts += [_dot(end, y, colour) for end in ends]
    return picture(bottom + 12, title, parts)


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten between the two."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [tick for power in powers for step in (1, 2, 5) if low <= (tick := float(f"{step}e{power}")) <= high]


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>'

"""Prometheus' text format, version 0.0.4: families of samples as lines.

Owns the escaping and the form of a family. Knows no metric.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tiered.metrics import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]
NO_LABELS: Labels = {}
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with its samples: numbers, or histograms of milliseconds that are shown in seconds."""

    name: str
    kind: Kind
    documentation: str
    samples: Iterable[tuple[Labels, float]] = ()
    histograms: Iterable[tuple[Labels, Histogram]] = ()

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.documentation}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield f"{self.name}{_braces(labels)} {_number(value)}"
        for labels, histogram in self.histograms:
            yield from self._buckets(labels, histogram)

    def _buckets(self, labels: Labels, histogram: Histogram) -> Iterator[str]:
        below = 0
        for bound_ms, count in zip(histogram.bounds_ms, histogram.counts, strict=False):
            below += count
            yield f"{self.name}_bucket{_braces({**labels, 'le': f'{bound_ms / 1000:g}'})} {below}"
        total = below + histogram.counts[-1]
        yield f"{self.name}_bucket{_braces({**labels, 'le': '+Inf'})} {total}"
        yield f"{self.name}_sum{_braces(labels)} {histogram.sum_ms / 1000:.6f}"
        yield f"{self.name}_count{_braces(labels)} {total}"


def counter(name: str, documentation: str, value: float) -> Family:
    """A counter without labels."""
    return Family(name=name, kind="counter", documentation=documentation, samples=[(NO_LABELS, value)])


def gauge(name: str, documentation: str, value: float) -> Family:
    """A gauge without labels."""
    return Family(name=name, kind="gauge", documentation=documentation, samples=[(NO_LABELS, value)])


def text_of(families: Iterable[Family]) -> str:
    """The whole exposition."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

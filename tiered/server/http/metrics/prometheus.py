"""Prometheus' text format, version 0.0.4: families of samples as lines.

Owns the escaping and the form of a family. Knows how a metric is described, and none of them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tiered.metrics import Histogram, Kind, Metric
from tiered.runtime import in_turns
from tiered.server.http.messages.schema import Read, reader

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_VALUE_CHARS = 255
Labels = Mapping[str, object]
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_ESCAPES = str.maketrans({**dict.fromkeys(map(chr, _CONTROLS), "\ufffd"), "\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with its samples: numbers, or histograms of milliseconds that are shown in seconds."""

    name: str
    kind: Kind
    documentation: str
    samples: Iterable[tuple[Labels, float | Histogram]]

    def pieces(self) -> Iterator[str]:
        """Lines that are of one moment each, a histogram's together. Between them the numbers may change."""
        samples = list(self.samples)
        yield f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} {self.kind}\n"
        for labels, value in samples:
            if isinstance(value, Histogram):
                yield "".join(f"{line}\n" for line in self._buckets(labels, value))
            else:
                yield f"{self.name}{_braces(labels)} {_number(value)}\n"

    def _buckets(self, labels: Labels, histogram: Histogram) -> Iterator[str]:
        below = 0
        for bound_ms, count in zip(histogram.bounds_ms, histogram.counts, strict=False):
            below += count
            yield f"{self.name}_bucket{_braces({**labels, 'le': f'{bound_ms / 1000:g}'})} {below}"
        total = below + histogram.counts[-1]
        yield f"{self.name}_bucket{_braces({**labels, 'le': '+Inf'})} {total}"
        yield f"{self.name}_sum{_braces(labels)} {histogram.sum_ms / 1000:.6f}"
        yield f"{self.name}_count{_braces(labels)} {total}"


def _metric(kind: Kind, name: str, documentation: str, read: Read, *labels: str) -> Metric:
    return Metric(name=name, kind=kind, documentation=documentation, labels=labels, read=reader(read))


counter = partial(_metric, "counter")
"""A metric that only grows."""
gauge = partial(_metric, "gauge")
"""A metric that rises and falls."""
histogram = partial(_metric, "histogram")
"""A metric of durations."""


def renamed(old_name: str, metric: Metric, *, factor: float = 1) -> Metric:
    """The metric under the name that it had, `factor` times as large there. It goes with the next version."""
    return replace(
        metric,
        name=old_name,
        documentation=f"Deprecated: use {metric.name}. Removed in the next version.",
        read=lambda source: metric.read(source) * factor,
    )


def families_of(metrics: Iterable[Metric], source: object) -> Iterator[Family]:
    """These metrics with what `source` says of each now."""
    for each in metrics:
        value = each.read(source)
        by_labels = sorted(value.items()) if each.labels else [((), value)]
        yield Family(
            name=each.name,
            kind=each.kind,
            documentation=each.documentation,
            samples=[(dict(zip(each.labels, _as_tuple(key), strict=True)), one) for key, one in by_labels],
        )


def _as_tuple(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


async def exposition_of(families: Iterable[Family]) -> bytes:
    """The whole exposition, made in short steps: there may be many partitions, and others have their turns between."""
    pieces = (piece for family in families for piece in family.pieces())
    return "".join([piece async for piece in in_turns(pieces)]).encode("utf-8", "replace")


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    """As Prometheus reads it. Clients choose some of the texts: a long one is its beginning and a hash, so that two
    stay two, and whoever looks at the page in a terminal is sent no control characters."""
    if len(value) > MAX_VALUE_CHARS:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        value = f"{value[: MAX_VALUE_CHARS - 17]}~{digest}"
    return value.translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

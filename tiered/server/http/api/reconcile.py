"""`/api/v1/reconcile`: what disk, catalogue and bucket disagree about, and how far the looking is.

Answers from memory, so it works while SQL and the object store are away. Each broker knows what it has found itself;
the others are asked for theirs, and one that does not answer in time is named.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tiered.broker.reconcile.findings import MAX_FINDINGS, FindingKind
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.elsewhere import told_by_others

_FINDING = Form(
    {
        "broker_id": schema.integer("Who found it."),
        "kind": (
            schema.text("docs/reconcile.md explains them.", allowed=tuple(kind.value for kind in FindingKind)),
            "kind.value",
        ),
        "topic": schema.text("Its id where nobody knows the topic."),
        "topic_id": (schema.text(), lambda finding: str(finding.topic_id)),
        "partition": schema.integer("-1 where none is concerned.", minimum=-1),
        "first_offset": schema.integer("-1 where none are concerned.", minimum=-1),
        "last_offset": schema.integer("Inclusive.", minimum=-1),
        "chunk": schema.integer("Counted from 0 in the object; -1 where it is all of it.", minimum=-1),
        "name": schema.text("An object's key, or a path on the broker's disk."),
        "message": schema.text(),
        "advice": schema.text("What to do."),
        "found_at_ms": schema.integer(),
        "seen_at_ms": schema.integer("When it was looked at last, and still was so."),
    },
)
_PROGRESS = Form(
    {
        "broker_id": schema.integer(),
        "enabled": (schema.boolean("False where tiered.reconcile.interval.ms is -1."), "reconciler.is_enabled"),
        "turns": (
            schema.integer("Times that all objects were looked for since the broker started."),
            "reconciler.bucket.turns",
        ),
        "objects": (schema.integer("Objects that were looked for."), "counters.reconcile_objects"),
        "requests": (schema.integer("Requests that this took."), "counters.reconcile_requests"),
        "scrubbed_bytes": (schema.integer(), "counters.scrubbed_bytes"),
        "scrubbed_chunks": (schema.integer(), "counters.scrubbed_chunks"),
        "scrub_turn_ended_at_ms": (
            schema.integer("When all chunks had been read last; 0 before that."),
            "reconciler.scrub.turn_ended_at_ms",
        ),
        "omitted": (
            schema.integer(f"Times that a finding had no room among {MAX_FINDINGS}."),
            "reconciler.findings.omitted",
        ),
    },
)
_RECONCILE = schema.record(
    {
        "brokers": schema.array(_PROGRESS.schema, "Those that answered."),
        "silent": schema.array(schema.integer(), "Brokers in service that did not: their findings are missing."),
        "findings": schema.array(_FINDING.schema, "By topic, partition and offset."),
    },
    is_open=True,
)


async def reconcile(request: web.Request) -> web.Response:
    """What disk, catalogue and bucket disagree about, on every broker."""
    broker = request.app[BROKER]
    progress = [_PROGRESS.of(broker)]
    findings = [_FINDING.of(each, broker_id=broker.broker_id) for each in broker.reconciler.findings.all()]
    answers, silent = await told_by_others(request, "/api/v1/reconcile")
    for answer in answers.values():
        progress += answer["brokers"]
        findings += answer["findings"]
    fields = {"brokers": sorted(progress, key=lambda each: each["broker_id"]), "silent": silent}
    return await json_with_list(fields, "findings", _in_order(findings))


def _in_order(findings: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(findings, key=lambda each: (each["topic"], each["partition"], each["first_offset"], each["name"]))


ROUTES = tagged(
    "cluster",
    route("GET", "/api/v1/reconcile", reconcile, answers_json(_RECONCILE)),
)

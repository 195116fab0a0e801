"""`/api/v1/topics/{topic}/partitions/{partition}/retention`: what the next round of retention would do, and why.

Answered by the partition's leader, with the rule that it obeys. What is pinned is in SQL, so this answers 503 while
that is away.
"""

from aiohttp import web

from tiered.broker.tiering.clock_watch import reason_to_doubt
from tiered.rules.segments.retention import Verdict, Why
from tiered.rules.segments.retention_runs import runs_of
from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.form import Form
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PARTITION, TOPIC
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.elsewhere import leader_elsewhere
from tiered.server.http.neighbours.forward import forward

MAX_RUNS = 10_000
_UNLIMITED = -1
_RUN = Form(
    {
        "base_offset": schema.integer(),
        "end_offset": schema.integer(),
        "segments": schema.integer(),
        "size_bytes": schema.integer(),
        "newest_ms": schema.integer("What their age counts from.", minimum=-schema.LONG_MAX),
        "deletes": schema.boolean(),
        "reason": (schema.text(allowed=[each.name.lower() for each in Why]), lambda run: run.why.name.lower()),
        "why": (schema.text("The reason in words."), "why.value"),
        "pin": schema.nullable(schema.text()),
    }
)
_SUM = schema.record({"segments": schema.integer(), "bytes": schema.integer()}, is_open=True)
_CONFIGS = Form(
    {
        "cleanup.policy": (schema.text(), lambda config: ",".join(config.cleanup_policy)),
        "retention.ms": (schema.integer(minimum=_UNLIMITED), "retention_ms"),
        "retention.bytes": (schema.integer(minimum=_UNLIMITED), "retention_bytes"),
        "local.retention.ms": (
            schema.integer("As it counts: -2 is resolved.", minimum=_UNLIMITED),
            "effective_local_retention_ms",
        ),
        "local.retention.bytes": (
            schema.integer("As it counts: -2 is resolved.", minimum=_UNLIMITED),
            "effective_local_retention_bytes",
        ),
        "remote.storage.enable": (schema.boolean(), "remote_storage_enable"),
        "tiered.purge.grace.ms": (schema.integer(), "tiered_purge_grace_ms"),
    }
)
_CLOCK = Form(
    {
        "trusted": (schema.boolean("Nothing is deleted for its age while it is false."), "is_trusted"),
        "ahead_ms": schema.integer(),
        "reason": (schema.text("Empty while the clock is trusted."), reason_to_doubt),
    }
)
_PIN = Form(
    {
        "name": schema.text(),
        "start_offset": schema.integer(),
        "end_offset": schema.integer(),
        "expires_at_ms": schema.nullable(schema.integer("Null: never.")),
    }
)
_RETIRED = Form(
    {
        "objects": (
            schema.integer("Out of the log already and still stored; 1,000 are told at the most."),
            len,
        ),
        "bytes": (schema.integer(), lambda retired: sum(each.size_bytes for each in retired)),
        "pinned_objects": (
            schema.integer("Of these, kept for a reader whatever their grace."),
            lambda retired: sum(each.is_pinned for each in retired),
        ),
        "next_purge_ms": (
            schema.nullable(schema.integer("When the grace of the first is over.")),
            lambda retired: min((each.purge_after_ms for each in retired if not each.is_pinned), default=None),
        ),
    }
)
_EXPLANATION = Form(
    {
        "broker_id": schema.integer("Who obeys this."),
        "topic": schema.text(),
        "partition": (schema.integer(), "topic_partition.partition"),
        "now_ms": schema.integer(),
        "configs": (_CONFIGS.schema, lambda partition: _CONFIGS.of(partition.config)),
        "clock": _CLOCK.schema,
        "log_start_offset": schema.integer(),
        "new_log_start_offset": schema.integer("Where the next round moves it."),
        "cold_end_offset": schema.integer(),
        "high_watermark": schema.integer(),
        "retires": _SUM,
        "keeps": _SUM,
        "pins": schema.array(_PIN.schema),
        "retired": _RETIRED.schema,
        "local_runs": schema.array(_RUN.schema, "The same for the leader's local copies.", max_items=MAX_RUNS),
    },
    and_then={
        "runs": schema.array(_RUN.schema, "Segments in a row with one verdict, oldest first.", max_items=MAX_RUNS)
    },
)


async def retention(request: web.Request) -> web.StreamResponse:
    """What the next round of retention would do to one partition, and why."""
    topic, number = topic_with_records(request), PARTITION.of(request)
    to = leader_elsewhere(request, topic, number)
    if to is not None:
        return await forward(request, to)
    broker, partition = request.app[BROKER], topic.partition(number)
    explained = await broker.retention.explain(partition)
    verdicts = explained.decided.verdicts
    fields = _EXPLANATION.of(
        partition,
        broker_id=broker.broker_id,
        now_ms=explained.now_ms,
        clock=_CLOCK.of(explained.clock),
        new_log_start_offset=explained.decided.delete_before_offset,
        retires=_sum([each for each in verdicts if each.deletes]),
        keeps=_sum([each for each in verdicts if not each.deletes]),
        pins=[_PIN.of(each) for each in explained.pins],
        retired=_RETIRED.of(explained.retired),
        local_runs=[_RUN.of(each) for each in runs_of(explained.local.verdicts)[:MAX_RUNS]],
    )
    runs = runs_of(verdicts)
    return await json_with_list(fields, "runs", map(_RUN.of, runs[:MAX_RUNS]))


def _sum(verdicts: list[Verdict]) -> dict[str, int]:
    return {"segments": len(verdicts), "bytes": sum(each.size_bytes for each in verdicts)}


ROUTES = tagged(
    "topics",
    route(
        "GET",
        "/api/v1/topics/{topic}/partitions/{partition}/retention",
        retention,
        answers_json(_EXPLANATION.schema),
        TOPIC,
        PARTITION,
    ),
)

"""`/api/v1/topics/{topic}/partitions/{partition}/…`: where one partition's data is, what retention does next, and why;
and Kafka's DeleteRecords.

Answered by the partition's leader, from its memory: "hot" is what the leader has on its disk. While there is no leader,
a replica here answers from its own log. What is pinned is in SQL, so `retention` answers 503 while that is away. What
`delete-records` would take is for the caller to look at before: the offsets of each partition are at
`/api/v1/topics/{topic}`, the one of a time at its records.
"""

from aiohttp import web

from tiered.broker.people.segment_listing import segments_of
from tiered.broker.tiering.clock_watch import reason_to_doubt
from tiered.rules.segments.retention import RetentionReason, Verdict, runs_of
from tiered.server.http.api.lookups import topic_of, topic_with_records
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PARTITION, json_of, query_number
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.answering_broker import handled_by, leader_elsewhere

MAX_SEGMENTS = 10_000
START_OFFSET = query_number("start_offset", "Segments that end after this offset.", default=0)
SEGMENT = schema.Form(
    {
        "base_offset": schema.integer(),
        "end_offset": schema.integer(),
        "tier": schema.text(allowed=("hot", "cold", "both")),
        "state": schema.text(allowed=("active", "closed", "committed")),
        "size_bytes": schema.integer(),
        "min_timestamp_ms": schema.integer("-1 where unknown.", minimum=-schema.LONG_MAX),
        "max_timestamp_ms": schema.integer("-1 where unknown.", minimum=-schema.LONG_MAX),
        "object_key": schema.nullable(schema.text()),
    },
)
_SEGMENTS = schema.Form(
    {
        "topic": schema.text(),
        "partition": (schema.integer(), "topic_partition.partition"),
        "log_start_offset": schema.integer(),
        "local_log_start_offset": (schema.integer(), "log.local_log_start_offset"),
        "cold_end_offset": schema.integer(),
        "overdue_end_offset": schema.integer("From cold_end_offset up to here uploads are late; equal if none is."),
        "high_watermark": schema.integer(),
        "log_end_offset": (schema.integer(), "log.log_end_offset"),
    },
    and_then={"segments": schema.array(SEGMENT.schema, max_items=MAX_SEGMENTS)},
)
MAX_RUNS = 10_000
_UNLIMITED = -1
_RUN = schema.Form(
    {
        "base_offset": schema.integer(),
        "end_offset": schema.integer(),
        "segments": schema.integer(),
        "size_bytes": schema.integer(),
        "newest_ms": schema.integer("What their age counts from.", minimum=-schema.LONG_MAX),
        "deletes": schema.boolean(),
        "reason": (
            schema.text(allowed=[each.name.lower() for each in RetentionReason]),
            lambda run: run.why.name.lower(),
        ),
        "why": (schema.text("The reason in words."), "why.value"),
        "pin": schema.nullable(schema.text()),
    }
)
_SUM = schema.record({"segments": schema.integer(), "bytes": schema.integer()}, is_open=True)
_CONFIGS = schema.Form(
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
_CLOCK = schema.Form(
    {
        "trusted": (schema.boolean("Nothing is deleted for its age while it is false."), "is_trusted"),
        "ahead_ms": schema.integer(),
        "reason": (schema.text("Empty while the clock is trusted."), reason_to_doubt),
    }
)
_PIN = schema.Form(
    {
        "name": schema.text(),
        "start_offset": schema.integer(),
        "end_offset": schema.integer(),
        "expires_at_ms": schema.nullable(schema.integer("Null: never.")),
    }
)
_RETIRED = schema.Form(
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
_EXPLANATION = schema.Form(
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
_BEFORE = schema.record(
    {"before_offset": schema.integer("The first offset that stays; -1 is the high watermark.", minimum=-1)}
)
_DELETED = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "log_start_offset": schema.integer("Where the log begins now."),
    },
    is_open=True,
)


@handled_by(lambda request: leader_elsewhere(request, topic_of(request), PARTITION.of(request)))
async def segments(request: web.Request) -> web.StreamResponse:
    """The metadata store of one partition: which offsets are hot, cold or both.

    At most 10,000 segments an answer; `?start_offset=` pages on from the last `end_offset`.
    """
    partition = topic_of(request).partition(PARTITION.of(request))
    found = segments_of(partition, start_offset=START_OFFSET.of(request), limit=MAX_SEGMENTS)
    fields = _SEGMENTS.of(partition, overdue_end_offset=request.app[BROKER].overdue_end_offset(partition))
    return await json_with_list(request, fields, "segments", map(SEGMENT.of, found))


@handled_by(lambda request: leader_elsewhere(request, topic_with_records(request), PARTITION.of(request)))
async def retention(request: web.Request) -> web.StreamResponse:
    """What the next round of retention would do to one partition, and why."""
    broker, partition = request.app[BROKER], topic_with_records(request).partition(PARTITION.of(request))
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
    return await json_with_list(request, fields, "runs", map(_RUN.of, runs[:MAX_RUNS]))


def _sum(verdicts: list[Verdict]) -> dict[str, int]:
    return {"segments": len(verdicts), "bytes": sum(each.size_bytes for each in verdicts)}


@handled_by(lambda request: leader_elsewhere(request, topic_with_records(request), PARTITION.of(request)))
async def delete_records(request: web.Request) -> web.StreamResponse:
    """Delete a partition's records before an offset, in both tiers.

    416 above the high watermark, 409 where a snapshot or a pin holds what would go.
    """
    topic, number = topic_with_records(request), PARTITION.of(request)
    body = await json_of(request, _BEFORE)
    start = await request.app[BROKER].admin.delete_records_of(topic, number, body["before_offset"])
    return web.json_response({"topic": topic.name, "partition": number, "log_start_offset": start})


_PATH = "/api/v1/topics/{topic}/partitions/{partition}"

ROUTES = (
    *tagged(
        "topics",
        route("GET", f"{_PATH}/segments", segments, answers_json(_SEGMENTS.schema), START_OFFSET),
        route("GET", f"{_PATH}/retention", retention, answers_json(_EXPLANATION.schema)),
    ),
    *tagged(
        "records",
        route("POST", f"{_PATH}/delete-records", delete_records, answers_json(_DELETED), body=_BEFORE),
    ),
)

"""`/api/v1/topics/{topic}/partitions/{partition}/retention`: what the next round of retention would do, and why.

Answered by the partition's leader, with the rule that it obeys. What is pinned is in SQL, so this answers 503 while
that is away.
"""

from typing import Any

from aiohttp import web

from tiered.broker.partition import Partition
from tiered.broker.retention import Explanation, RetiredObject, reason_to_doubt
from tiered.rules.retention import Verdict, Why
from tiered.rules.retention_runs import Run, runs_of
from tiered.server.http.api.lookups import topic_with_records
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import PARTITION, TOPIC
from tiered.server.http.messages.route import Route, answers_json
from tiered.server.http.neighbours.elsewhere import leader_elsewhere
from tiered.server.http.neighbours.forward import forward

MAX_RUNS = 10_000
_UNLIMITED = -1
_RUN = schema.record(
    {
        "base_offset": schema.integer(),
        "end_offset": schema.integer(),
        "segments": schema.integer(),
        "size_bytes": schema.integer(),
        "newest_ms": schema.integer("What their age counts from.", minimum=-schema.LONG_MAX),
        "deletes": schema.boolean(),
        "reason": schema.text(allowed=[each.name.lower() for each in Why]),
        "why": schema.text("The reason in words."),
        "pin": schema.nullable(schema.text()),
    },
    is_open=True,
)
_SUM = schema.record({"segments": schema.integer(), "bytes": schema.integer()}, is_open=True)
_EXPLANATION = schema.record(
    {
        "topic": schema.text(),
        "partition": schema.integer(),
        "broker_id": schema.integer("Who obeys this."),
        "now_ms": schema.integer(),
        "configs": schema.record(
            {
                "cleanup.policy": schema.text(),
                "retention.ms": schema.integer(minimum=_UNLIMITED),
                "retention.bytes": schema.integer(minimum=_UNLIMITED),
                "local.retention.ms": schema.integer("As it counts: -2 is resolved.", minimum=_UNLIMITED),
                "local.retention.bytes": schema.integer("As it counts: -2 is resolved.", minimum=_UNLIMITED),
                "remote.storage.enable": schema.boolean(),
                "tiered.purge.grace.ms": schema.integer(),
            },
            is_open=True,
        ),
        "clock": schema.record(
            {
                "trusted": schema.boolean("Nothing is deleted for its age while it is false."),
                "ahead_ms": schema.integer(),
                "reason": schema.text("Empty while the clock is trusted."),
            },
            is_open=True,
        ),
        "log_start_offset": schema.integer(),
        "new_log_start_offset": schema.integer("Where the next round moves it."),
        "cold_end_offset": schema.integer(),
        "high_watermark": schema.integer(),
        "retires": _SUM,
        "keeps": _SUM,
        "pins": schema.array(
            schema.record(
                {
                    "name": schema.text(),
                    "start_offset": schema.integer(),
                    "end_offset": schema.integer(),
                    "expires_at_ms": schema.nullable(schema.integer("Null: never.")),
                },
                is_open=True,
            )
        ),
        "retired": schema.record(
            {
                "objects": schema.integer("Out of the log already and still stored; 1,000 are told at the most."),
                "bytes": schema.integer(),
                "pinned_objects": schema.integer("Of these, kept for a reader whatever their grace."),
                "next_purge_ms": schema.nullable(schema.integer("When the grace of the first is over.")),
            },
            is_open=True,
        ),
        "local_runs": schema.array(_RUN, "The same for the leader's local copies.", max_items=MAX_RUNS),
        "runs": schema.array(_RUN, "Segments in a row with one verdict, oldest first.", max_items=MAX_RUNS),
    },
    is_open=True,
)


async def retention(request: web.Request) -> web.StreamResponse:
    topic, number = topic_with_records(request), PARTITION.of(request)
    to = leader_elsewhere(request, topic, number)
    if to is not None:
        return await forward(request, to)
    broker, partition = request.app[BROKER], topic.partition(number)
    explained = await broker.retention.explain(partition)
    fields = {"broker_id": broker.broker_id, **_fields(partition, explained)}
    runs = runs_of(explained.decided.verdicts)
    return await json_with_list(fields, "runs", (_run_fields(each) for each in runs[:MAX_RUNS]))


def _fields(partition: Partition, explained: Explanation) -> dict[str, Any]:
    config = partition.config
    verdicts = explained.decided.verdicts
    return {
        "topic": partition.topic,
        "partition": partition.topic_partition.partition,
        "now_ms": explained.now_ms,
        "configs": {
            "cleanup.policy": ",".join(config.cleanup_policy),
            "retention.ms": config.retention_ms,
            "retention.bytes": config.retention_bytes,
            "local.retention.ms": config.effective_local_retention_ms,
            "local.retention.bytes": config.effective_local_retention_bytes,
            "remote.storage.enable": config.remote_storage_enable,
            "tiered.purge.grace.ms": config.tiered_purge_grace_ms,
        },
        "clock": {
            "trusted": explained.clock.is_trusted,
            "ahead_ms": explained.clock.ahead_ms,
            "reason": reason_to_doubt(explained.clock),
        },
        "log_start_offset": partition.log_start_offset,
        "new_log_start_offset": explained.decided.delete_before_offset,
        "cold_end_offset": partition.cold_end_offset,
        "high_watermark": partition.high_watermark,
        "retires": _sum([each for each in verdicts if each.deletes]),
        "keeps": _sum([each for each in verdicts if not each.deletes]),
        "pins": [
            {
                "name": each.name,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "expires_at_ms": each.expires_at_ms,
            }
            for each in explained.pins
        ],
        "retired": _retired_fields(explained.retired),
        "local_runs": [_run_fields(each) for each in runs_of(explained.local.verdicts)[:MAX_RUNS]],
    }


def _sum(verdicts: list[Verdict]) -> dict[str, int]:
    return {"segments": len(verdicts), "bytes": sum(each.size_bytes for each in verdicts)}


def _retired_fields(retired: tuple[RetiredObject, ...]) -> dict[str, Any]:
    return {
        "objects": len(retired),
        "bytes": sum(each.size_bytes for each in retired),
        "pinned_objects": sum(each.is_pinned for each in retired),
        "next_purge_ms": min((each.purge_after_ms for each in retired if not each.is_pinned), default=None),
    }


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "base_offset": run.base_offset,
        "end_offset": run.end_offset,
        "segments": run.segments,
        "size_bytes": run.size_bytes,
        "newest_ms": run.newest_ms,
        "deletes": run.deletes,
        "reason": run.why.name.lower(),
        "why": run.why.value,
        "pin": run.pin,
    }


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/topics/{topic}/partitions/{partition}/retention",
        handler=retention,
        summary="What the next round of retention would do to one partition, and why.",
        tag="topics",
        parameters=(TOPIC, PARTITION),
        answers=answers_json(_EXPLANATION),
    ),
)

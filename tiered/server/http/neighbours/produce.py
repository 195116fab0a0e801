"""Writes records to the leaders of their partitions: this broker's own here, the others over HTTP.

Owns which partition a record goes to where several brokers lead them, and the requests between brokers, which are
ordinary ones for `/v3/…/records` with every partition named. Each record has an outcome of its own. Must never send
a record twice: where an answer is missing its outcome is unknown, and the error says so.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tiered.broker.partitions.topics import Topic
from tiered.broker.people.record_writer import NewRecord, WrittenRecord
from tiered.errors import NotLeader, TieredError
from tiered.ids import TopicPartition
from tiered.rules.partition.partitioner import next_partition, partition_for_key
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages.failures import v3_refusal
from tiered.server.http.messages.json_numbers import json_text
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.route import JSON
from tiered.server.http.messages.timestamps import timestamp_ms_of
from tiered.server.http.neighbours.answering_broker import neighbour
from tiered.server.http.neighbours.forward import Neighbour, Unreachable, asking, content_of

MAX_ADDED_BYTES = 1024
"""How much longer a record's JSON may be with its partition's number."""
BODY_BYTES = 3 << 20
MAX_ANSWER_BYTES = 4 << 20
SUCCESS = 200

Outcome = WrittenRecord | TieredError
Body = Mapping[str, Any]


class RecordRouter:
    """Spreads records without a key over the partitions, one partition for all that come together."""

    def __init__(self) -> None:
        self._keyless = -1

    async def write(
        self, request: web.Request, topic: Topic, records: Sequence[NewRecord], bodies: Sequence[Body]
    ) -> list[Outcome]:
        """The outcome of each record, in their order; `bodies` are the same records as they were sent."""
        broker = request.app[BROKER]
        leaders = _leaders(request, topic)
        if is_forwarded(request) or set(leaders) <= {broker.broker_id}:
            return list(await broker.record_writer.write(topic, records))
        chosen = self._chosen(topic.partition_count, records, leaders)
        groups: dict[int | None, list[int]] = {}
        for place, number in enumerate(chosen):
            # The writer here refuses a partition that does not exist.
            leader = leaders[number] if number < len(leaders) else broker.broker_id
            groups.setdefault(leader, []).append(place)
        outcomes: dict[int, Outcome] = {}

        async def write_some(leader: int | None, places: list[int]) -> None:
            numbers = [chosen[place] for place in places]
            found: Sequence[Outcome]
            if leader is None:
                found = [NotLeader(f"{topic.name}-{number} has no leader now; try again") for number in numbers]
            elif leader == broker.broker_id:
                wanted = [replace(records[place], partition=chosen[place]) for place in places]
                found = await broker.record_writer.write(topic, wanted)
            else:
                to = neighbour(broker.image.brokers[leader])
                found = await _send(request, to, topic, [bodies[place] for place in places], numbers)
            outcomes.update(zip(places, found, strict=True))

        async with asyncio.TaskGroup() as tasks:
            for leader, places in groups.items():
                tasks.create_task(write_some(leader, places))
        return [outcomes[place] for place in range(len(records))]

    def _chosen(self, count: int, records: Sequence[NewRecord], leaders: Sequence[int | None]) -> list[int]:
        """The partition of each record: the one that it names, its key's, else the next one that has a leader."""
        for _ in range(count):
            self._keyless = next_partition(self._keyless, count)
            if leaders[self._keyless] is not None:
                break
        return [self._partition_of(each, count) for each in records]

    def _partition_of(self, record: NewRecord, count: int) -> int:
        if record.partition is not None:
            return record.partition
        return self._keyless if record.key is None else partition_for_key(record.key, count)


ROUTER: web.AppKey[RecordRouter] = web.AppKey("record_router", RecordRouter)


def _leaders(request: web.Request, topic: Topic) -> list[int | None]:
    """The leader of each partition, by the partition's number."""
    image = request.app[BROKER].image
    found = (image.leader_of(TopicPartition(topic.topic_id, number)) for number in range(topic.partition_count))
    return [None if leader is None else leader.broker_id for leader in found]


async def _send(
    request: web.Request, to: Neighbour, topic: Topic, bodies: Sequence[Body], numbers: Sequence[int]
) -> list[Outcome]:
    """Another broker's outcomes for these records. It gets one request after the other, to keep their order."""
    outcomes: list[Outcome] = []
    lines = [json_text({**body, "partition_id": number}).encode() for body, number in zip(bodies, numbers, strict=True)]
    cluster_id = request.app[BROKER].cluster_id
    path = f"/v3/clusters/{cluster_id}/topics/{quote(topic.name, safe='')}/records"
    headers = {"Content-Type": JSON}
    for some in _in_bodies(lines):
        try:
            async with asking(request, to, "POST", path, headers=headers, body=b"\n".join(some)) as answer:
                content = await content_of(answer, to, MAX_ANSWER_BYTES)
            outcomes += _outcomes(answer.status, content, len(some))
        except (Unreachable, ValueError, KeyError) as error:
            unknown = Unreachable(f"{error}. It may have written the record all the same: look, then try again")
            outcomes += [unknown] * len(some)
    return outcomes


def _in_bodies(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The lines in as few requests as their bound allows."""
    some: list[bytes] = []
    for line in lines:
        if some and sum(map(len, some)) + len(line) > BODY_BYTES:
            yield some
            some = []
        some.append(line)
    if some:
        yield some


def _outcomes(status: int, content: bytes, count: int) -> list[Outcome]:
    """One object a line, each a record's; or one error for all of them."""
    found = [json.loads(line) for line in content.splitlines() if line]
    if status != SUCCESS:
        return [v3_refusal(str(found[0]["message"]), int(found[0]["error_code"]))] * count
    if len(found) != count:
        raise ValueError(f"another broker has answered {len(found)} of {count} records")
    return [_outcome(each) for each in found]


def _outcome(report: Body) -> Outcome:
    if report["error_code"] != SUCCESS:
        return v3_refusal(str(report["message"]), int(report["error_code"]))
    timestamp_ms = timestamp_ms_of(report["timestamp"])
    assert timestamp_ms is not None, "a record that was written has a time"
    return WrittenRecord(partition=report["partition_id"], offset=report["offset"], timestamp_ms=timestamp_ms)

"""POST `/v3/clusters/{cluster_id}/topics/{topic_name}/records`: producing over HTTP, in Confluent's shapes.

A body is one record, or several JSON objects that follow each other; each is answered, in their order. One record
alone is answered with the status of its outcome; several with 200 and a code each. Records of partitions that other
brokers lead are written by these, and answered in their places. A body of unknown length (chunked) is answered while
it comes, for as long as it comes: a connection kept open is a producer.
Gaps: no schema registry, so the types are BINARY (base64), JSON and STRING; no compression.
"""

import asyncio
import binascii
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from tiered.broker.people.record_writer import NewRecord, WrittenRecord
from tiered.errors import InvalidRequest, InvalidTopic, RequestTimedOut, TieredError
from tiered.ids import TopicId
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.quotas import QuotaKey
from tiered.runtime import in_turns
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.quotas import count, count_and_rest, require_none_owed
from tiered.server.http.door.rights import require_still
from tiered.server.http.messages.body import body_of, pieces_of
from tiered.server.http.messages.failures import v3_status_and_code
from tiered.server.http.messages.json_numbers import json_text
from tiered.server.http.messages.json_stream import JsonSplitter
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.messages.parameters import parsed
from tiered.server.http.messages.route import JSON, answers_json, route, tagged
from tiered.server.http.messages.schema import (
    ANYTHING,
    INT_MAX,
    Schema,
    array,
    check,
    input_record,
    integer,
    nullable,
    one_of,
    record,
    text,
)
from tiered.server.http.messages.timestamps import text_of, timestamp_ms_of
from tiered.server.http.neighbours.produce import MAX_ADDED_BYTES, ROUTER
from tiered.server.http.v3.topics import TOPIC_PATH, topic_of

MAX_BODY_BYTES = 4 << 20
MAX_RECORD_BYTES = 4 << 20
MAX_RECORDS_A_BODY = 10_000
MAX_RECORDS_AT_ONCE = 500
# Records that are written together.
PIECE_BYTES = 16 << 10
# The smallest record is two bytes, the largest all there may be: others have their turn in between.
BYTES_A_TURN = 2 << 10
MAX_HEADERS = 1000
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_NULL: Schema = {"type": "null"}
_UNUSED = ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema")


def _data_schema(kind: str, data: Schema) -> Schema:
    unused = dict.fromkeys(_UNUSED, _NULL)
    return record({"type": text(allowed=(kind,)), "data": data, **unused}, optional=_UNUSED)


_TYPES = {
    "BINARY": _data_schema("BINARY", nullable(text("Base64.", pattern=_BASE64))),
    "STRING": _data_schema("STRING", nullable(text("Stored as UTF-8."))),
    "JSON": _data_schema("JSON", ANYTHING),
}
_DATA = one_of(*_TYPES.values())
_RECORD = input_record(
    {
        "partition_id": integer("By the key if absent, as Kafka's clients choose.", maximum=INT_MAX),
        "headers": array(
            input_record({"name": text(), "value": text("Base64.", pattern=_BASE64)}, optional=("value",)),
            max_items=MAX_HEADERS,
        ),
        "key": _DATA,
        "value": _DATA,
        "timestamp": text("As in 2026-01-31T12:00:00.123Z; now if absent.", format="date-time"),
    },
    optional=("partition_id", "headers", "key", "value", "timestamp"),
)
_SIZE = nullable(record({"type": text(), "size": integer()}))
_REPORT = record(
    {
        "error_code": integer("200."),
        "cluster_id": text(),
        "topic_name": text(),
        "partition_id": integer(),
        "offset": integer(),
        "timestamp": nullable(text(format="date-time")),
        "key": _SIZE,
        "value": _SIZE,
    },
    optional=("key", "value"),
)


async def _produce(request: web.Request) -> web.StreamResponse:
    """Produce records."""
    _, topic = topic_of(request)
    if topic.is_internal:
        raise InvalidTopic(f"topic {topic.name} is internal: clients may not write to it")
    require_none_owed(request, QuotaKey.PRODUCER_BYTE_RATE)
    if request.content_length is None and request.can_read_body:
        return await _produce_stream(request, topic.topic_id)
    # A request that another broker passes on also has the numbers of its partitions.
    max_bytes = MAX_BODY_BYTES + (MAX_ADDED_BYTES if is_forwarded(request) else 0)
    body = await body_of(request, max_bytes)
    count(request, QuotaKey.PRODUCER_BYTE_RATE, len(body))
    objects = await _objects(body, max_bytes)
    reports = [each async for each in _reports(request, topic.topic_id, objects)]
    if len(reports) == 1:
        report = reports[0]
        if isinstance(report, TieredError):
            raise report
        return web.json_response(report)
    return web.Response(body=b"".join(map(_line, reports)), content_type=JSON)


async def _objects(body: bytes, max_bytes: int) -> list[bytes]:
    """The records of a body that is there as a whole."""
    splitter = JsonSplitter(max_bytes)
    found: list[bytes] = []
    for piece in _pieces(body, PIECE_BYTES):
        found += await _split(splitter, piece)
        if len(found) > MAX_RECORDS_A_BODY:
            raise InvalidRequest(f"there are more than {MAX_RECORDS_A_BODY} records: send fewer, or a chunked body")
    splitter.end()
    if not found:
        raise InvalidRequest("the request has no body: send a record as a JSON object")
    return found


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


async def _split(splitter: JsonSplitter, data: bytes) -> list[bytes]:
    """The records that `data` completes, found in turns."""
    found: list[bytes] = []
    for some in _pieces(data, BYTES_A_TURN):
        found += splitter.feed(some)
        await asyncio.sleep(0)
    return found


async def _produce_stream(request: web.Request, topic_id: TopicId) -> web.StreamResponse:
    """Answers each record as soon as it is written. Ends a client that is too slow to send or to take answers.

    An error that ends the stream is its last line, and then the connection ends.
    """
    coming = pieces_of(request)
    response = web.StreamResponse(headers={"Content-Type": JSON})
    await response.prepare(request)
    try:
        await _answer_while_it_comes(request, response, topic_id, coming)
    except RequestPayloadError as error:
        await _end_with(response, InvalidRequest(f"the body cannot be read any further: {error}"))
    except TimeoutError:
        await _end_with(response, RequestTimedOut("no record came in time; connect again to send more"))
    except TieredError as error:
        await _end_with(response, error)
    await response.write_eof()
    return response


async def _answer_while_it_comes(
    request: web.Request, response: web.StreamResponse, topic_id: TopicId, coming: AsyncIterator[bytes]
) -> None:
    patience_s = request.app[BROKER].settings.http.tiered_http_request_timeout_ms / 1000.0
    splitter = JsonSplitter(MAX_RECORD_BYTES)
    while True:
        async with asyncio.timeout(patience_s):
            data = await anext(coming, None)
        if data is None:
            splitter.end()
            return
        for piece in _pieces(data, PIECE_BYTES):
            objects = await _split(splitter, piece)
            async with asyncio.timeout(patience_s):
                async for report in _reports(request, topic_id, objects):
                    await response.write(_line(report))
        await count_and_rest(request, QuotaKey.PRODUCER_BYTE_RATE, len(data))


async def _end_with(response: web.StreamResponse, error: TieredError) -> None:
    response.force_close()
    await response.write(_line(error))


async def _reports(
    request: web.Request, topic_id: TopicId, objects: Sequence[bytes]
) -> AsyncIterator[dict[str, Any] | TieredError]:
    """The outcome of each record. Topic and right are looked up anew each time, for a stream may outlive either."""
    broker = request.app[BROKER]
    for first in range(0, len(objects), MAX_RECORDS_AT_ONCE):
        asked = [_asked(each) async for each in in_turns(objects[first : first + MAX_RECORDS_AT_ONCE])]
        topic = broker.topics.by_id(topic_id)
        require_still(request, Operation.WRITE, ResourceType.TOPIC, topic.name)
        wanted = [each[1] for each in asked if not isinstance(each, TieredError)]
        bodies = [each[0] for each in asked if not isinstance(each, TieredError)]
        outcomes = iter(await request.app[ROUTER].write(request, topic, wanted, bodies) if wanted else [])
        for outcome in asked:
            if isinstance(outcome, TieredError):
                yield outcome
                continue
            written = next(outcomes)
            yield (
                _report(broker.cluster_id, topic.name, *outcome, written)
                if isinstance(written, WrittenRecord)
                else written
            )
        await asyncio.sleep(0)


def _asked(raw: bytes) -> tuple[dict[str, Any], NewRecord] | TieredError:
    """The record that was sent, as JSON and as what it stands for; or why it is none."""
    try:
        body = parsed(raw)
        for name in ("key", "value"):
            _check_type(body.get(name), f"the record.{name}")
        check(body, _RECORD, "the record")
        return body, NewRecord(
            key=_bytes(body.get("key"), "the record.key"),
            value=_bytes(body.get("value"), "the record.value"),
            headers=tuple(
                (each["name"], _base64(each.get("value"), f"header {each['name'][:80]!r}"))
                for each in body.get("headers") or ()
            ),
            partition=body.get("partition_id"),
            timestamp_ms=timestamp_ms_of(body.get("timestamp")),
        )
    except InvalidRequest as error:
        return error


def _check_type(given: object, where: str) -> None:
    """Says more than the schema, which knows of alternatives alone."""
    if not isinstance(given, dict):
        return
    schema = _TYPES.get(str(given.get("type")))
    if schema is None:
        raise InvalidRequest(f"{where}.type must be BINARY, STRING or JSON: there is no schema registry for others")
    check(given, schema, where)


def _bytes(given: dict[str, Any] | None, where: str) -> bytes | None:
    if given is None:
        return None
    data = given["data"]
    match given["type"]:
        case "BINARY":
            return _base64(data, f"{where}.data")
        case "STRING":
            return None if data is None else str(data).encode()
        case _:
            try:
                return json_text(data).encode()
            except (UnicodeEncodeError, RecursionError) as error:
                raise InvalidRequest(f"{where}.data cannot be stored as JSON in UTF-8: {error}") from None


def _base64(data: str | None, where: str) -> bytes | None:
    if data is None:
        return None
    try:
        return b64decode(data.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise InvalidRequest(f"{where} is no base64: encode the bytes, or use the type STRING or JSON") from None


def _report(
    cluster_id: str, topic: str, body: dict[str, Any], sent: NewRecord, written: WrittenRecord
) -> dict[str, Any]:
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": text_of(written.timestamp_ms),
        **{
            name: {"type": body[name]["type"], "size": len(content)}
            for name, content in (("key", sent.key), ("value", sent.value))
            if content is not None
        },
    }


def _line(report: dict[str, Any] | TieredError) -> bytes:
    if isinstance(report, TieredError):
        report = {"error_code": v3_status_and_code(report)[1], "message": str(report)}
    return json.dumps(report).encode() + b"\n"


ROUTES = tagged(
    "v3 records",
    route(
        "POST",
        TOPIC_PATH + "/records",
        _produce,
        answers_json(_REPORT),
        body=_RECORD,
        description=(
            "Several records are several JSON objects that follow each other; each is answered by one JSON object "
            "with an error_code, 200 for success. A chunked body is answered while it comes."
        ),
        takes_stream=True,
    ),
)

"""A broker of one topic that answers as a test tells it, true or not. Real sockets, in a thread of its own."""

import socketserver
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from tests.components.batches import batch
from tiered.wire import fetch, frames, messages

FETCH, LIST_OFFSETS, METADATA, VERSIONS = 1, 2, 3, 18
_SERVED = {FETCH: (4, 11), LIST_OFFSETS: (1, 5), METADATA: (1, 12), VERSIONS: (0, 2)}
END = 20


class LyingBroker:
    """Leads partition 0 of `topic`, whose records are 0 to 19, unless it says something else:

    `host`, `port` and `partitions` in its metadata, `name` for the topic's, `records` in answers to Fetch, by offset.
    `also` has the answers of other APIs: by key, a version and what makes the answer.
    """

    def __init__(
        self, topic: str = "numbers", *, also: Mapping[int, tuple[int, Callable[[Any], Any]]] | None = None, **lies: Any
    ) -> None:
        self._also = dict(also or {})
        self._topic = topic
        self._lies = lies
        self.fetches = 0
        broker = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while len(head := self.rfile.read(4)) == 4:
                    request = self.rfile.read(struct.unpack(">i", head)[0])
                    self.wfile.write(broker.answer(request))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.bootstrap = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", request)
        if key == VERSIONS and version > _SERVED[VERSIONS][1]:
            return _framed(struct.pack(">ihi", correlation_id, 35, 0))
        body = 10 + max(0, struct.unpack_from(">h", request, 8)[0]) + frames.is_flexible(key, version)
        if key == FETCH:
            return self._fetched(request, body, version, correlation_id)
        make = messages.reply(key, version)
        if key in self._also:
            told = self._also[key][1](make)
        elif key == LIST_OFFSETS:
            told = self._offsets(make, messages.request_decoder(key, version)(request, body))
        else:
            told = self._metadata(make) if key == METADATA else self._versions(make)
        return _framed(frames.response_header(correlation_id, key, version) + messages.encode(told))

    def _versions(self, make: Any) -> Any:
        served = _SERVED | {key: (version, version) for key, (version, _) in self._also.items()}
        keys = [
            make.ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in served.items()
        ]
        return make.ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time=0)

    def _metadata(self, make: Any) -> Any:
        partitions = [
            make.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=(1,),
                isr_nodes=(1,),
                offline_replicas=(),
            )
            for number in self._lies.get("partitions", [0])
        ]
        here = make.MetadataResponseBroker(
            node_id=1, host=self._lies.get("host", "127.0.0.1"), port=self._lies.get("port", self.port), rack=None
        )
        name = self._lies.get("name", self._topic)
        topic = make.MetadataResponseTopic(
            error_code=0, name=name, topic_id=None, is_internal=False, partitions=partitions
        )
        return make.MetadataResponse(
            throttle_time=0, brokers=[here], cluster_id="cluster", controller_id=1, topics=[topic]
        )

    def _offsets(self, make: Any, request: Any) -> Any:
        (topic,) = request.topics
        return make.ListOffsetsResponse(
            throttle_time=0,
            topics=[
                make.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        make.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=0, timestamp=-1, leader_epoch=0,
                            offset=0 if each.timestamp == -2 else END,
                        )
                        for each in topic.partitions
                    ],
                )
            ],
        )  # fmt: skip

    def _fetched(self, request: bytes, body: int, version: int, correlation_id: int) -> bytes:
        self.fetches += 1
        (asked,) = fetch.decode_fetch_request(memoryview(request), body, len(request), version).topics
        offset = asked.partitions[0].fetch_offset
        records: Callable[[int], bytes] = self._lies.get("records", lambda at: batch_at(at, [b"x"] * (END - at)))
        told = fetch.FetchPartitionResult(self._lies.get("fetched", 0), 0, END, END, 0, records(offset), None)
        topics = [fetch.FetchTopicResult(asked.name, None, [told])]
        return b"".join(bytes(each) for each in fetch.encode_fetch_response(version, correlation_id, 0, 0, topics))


def batch_at(offset: int, values: Sequence[bytes]) -> bytes:
    """One batch of records that begins at `offset`."""
    return struct.pack(">q", offset) + batch(values)[8:] if values else b""


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data

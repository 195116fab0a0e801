"""Requests by hand: what a client library would never send, and answers as they are on the wire."""

import asyncio
import socket
import struct
from typing import Any, Protocol, Self

from tests.broker_process import BrokerProcess
from tiered.wire import fetch as fetch_codec
from tiered.wire import frames, messages
from tiered.wire import produce as produce_codec


class KafkaDoor(Protocol):
    """Whoever speaks Kafka's protocol on a port of this machine."""

    @property
    def kafka_port(self) -> int: ...


class RawConnection:
    """One blocking connection. Bodies are bytes; frames and headers are made here."""

    def __init__(self, broker: KafkaDoor, *, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._socket = socket.create_connection(("127.0.0.1", broker.kafka_port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 100

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, api_key: int, version: int, body: bytes, *, client_id: str | None = "raw") -> int:
        """The correlation id of the request sent."""
        self.correlation_id += 1
        head = frames.request_header(api_key, version, self.correlation_id, client_id)
        self.send_bytes(struct.pack(">i", len(head) + len(body)) + head + body)
        return self.correlation_id

    def receive_frame(self) -> bytes:
        """One frame without its length; raises ConnectionError when the broker closed."""
        length = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(length)

    def receive(self, api_key: int, version: int) -> tuple[int, bytes]:
        """(correlation id, body)"""
        frame = self.receive_frame()
        skip = len(frames.response_header(0, api_key, version))
        return struct.unpack_from(">i", frame)[0], frame[skip:]

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """The answer's body; checks that it belongs to the request."""
        sent = self.send(api_key, version, body)
        correlation_id, answer = self.receive(api_key, version)
        assert correlation_id == sent
        return answer

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        """The decoded answer to a message built with `messages.request`."""
        return messages.response_decoder(api_key, version)(self.call(api_key, version, messages.encode(request)), 0)

    def is_closed_by_broker(self) -> bool:
        """True when the broker ends the connection without a word."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def answers_nothing(self, wait_s: float = 0.3) -> bool:
        """True when nothing comes within `wait_s` and the connection stays open."""
        self._socket.settimeout(wait_s)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(self._timeout_s)
        return False

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    # Produce and Fetch

    def produce(
        self,
        topic: str,
        batch: bytes | None,
        *,
        partition: int = 0,
        version: int = 9,
        acks: int = 1,
        transactional_id: str | None = None,
    ) -> produce_codec.PartitionResult:
        body = produce_codec.encode_produce_request(
            [produce_codec.TopicBatches(topic, None, [(partition, batch)])],
            version,
            acks=acks,
            timeout_ms=5000,
            transactional_id=transactional_id,
        )
        answer = self.call(produce_codec.API_KEY, version, body)
        return produce_codec.decode_produce_response(answer, 0, len(answer), version).topics[0].partitions[0]

    def fetch(
        self,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation_level: int = 0,
        leader_epoch: int = -1,
        session_id: int = 0,
        session_epoch: int = -1,
    ) -> fetch_codec.FetchPartitionResult:
        answer = self.fetch_many(
            [(topic, partition, offset, leader_epoch, partition_max_bytes)],
            version=version, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
            isolation_level=isolation_level, session_id=session_id, session_epoch=session_epoch,
        )  # fmt: skip
        return answer.topics[0].partitions[0]

    def fetch_many(
        self,
        wanted: list[tuple[str, int, int, int, int]],
        *,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
    ) -> fetch_codec.FetchResponse:
        """`wanted`: (topic, partition, offset, leader epoch, partition_max_bytes), one topic entry each."""
        topics = [
            fetch_codec.FetchTopic(topic, None, [fetch_codec.FetchPartition(partition, epoch, offset, -1, -1, limit)])
            for topic, partition, offset, epoch, limit in wanted
        ]
        request = fetch_codec.FetchRequest(
            -1, -1, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics
        )
        answer = self.call(fetch_codec.API_KEY, version, fetch_codec.encode_fetch_request(request, version))
        return fetch_codec.decode_fetch_response(answer, 0, len(answer), version)


async def fetch_all(broker: BrokerProcess, topic: str) -> bytes:
    """Every batch of partition 0 from offset 0 on, joined, each once."""
    return await asyncio.to_thread(_fetch_all, broker, topic)


def _fetch_all(broker: BrokerProcess, topic: str) -> bytes:
    from tiered.formats import record_batch

    found = bytearray()
    offset = 0
    with RawConnection(broker, timeout_s=30) as connection:
        while True:
            answer = connection.fetch(topic, offset, partition_max_bytes=300_000)
            assert answer.error_code == 0, answer.error_code
            if offset >= answer.high_watermark:
                return bytes(found)
            assert answer.records is not None
            data = bytes(answer.records)  # type: ignore[arg-type]
            for position, header in record_batch.whole_batches(data, 0, len(data)):
                if header.end_offset > offset:
                    found += data[position : position + header.size_bytes]
                    offset = header.end_offset

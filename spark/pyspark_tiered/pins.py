"""Pins and snapshots over a broker's HTTP door: what retention must leave while a query reads it.

Owns these requests, and the thread that renews pins. A pin ends by itself when nobody renews
it, so a query that dies holds nothing up for long. Must never fail a read that has begun because a renewal failed.
"""

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import UUID

from pyspark_tiered.http_door import BrokersHttp, RefusedOverHttp
from tiered.errors import OffsetOutOfRange, PinNotFound, Throttled, TieredError, UnknownTopicOrPartition
from tiered.peer.security import PLAINTEXT, ClientSecurity
from tiered.runtime import SystemClock

log = logging.getLogger(__name__)

_RENEWALS_PER_LIFE = 4
_IDLE_S = 1.0

_MAX_REMEMBERED = 10_000

OffsetPair = tuple[int, int]
"""First offset, and the one after the last."""

_renewed_s: dict[str, float] = {}
"""When this process took or renewed each pin: its tasks are often shorter than the time between two renewals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPin:
    """The hold on one topic, until nobody has renewed it for `ttl_ms`."""

    pin_id: str
    topic: str
    topic_id: UUID
    ttl_ms: int
    held: Mapping[int, OffsetPair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot as the metadata store has it."""

    topic: str
    topic_id: UUID
    held: Mapping[int, OffsetPair]


class PinDoor:
    """The brokers' HTTP addresses, and who asks.

    Raises `MetadataUnavailable` when none does, `OffsetOutOfRange` for what is deleted already or not committed yet,
    `PinNotFound` for what has ended, `Throttled` at the bound of pins, and `InvalidRequest` for what brokers refuse.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity = PLAINTEXT) -> None:
        self._door = BrokersHttp(
            urls,
            security,
            otherwise="start a broker with that HTTP address, or remove the option and read without pins",
        )

    def take(self, topic: str, ranges: Mapping[int, OffsetPair] | None = None) -> TopicPin:
        """A new pin of these ranges, or of all that the topic's log holds."""
        body: dict[str, object] = {"topic": topic, "owner": f"spark {socket.gethostname()} {os.getpid()}"}
        if ranges is not None:
            body["partitions"] = [
                {"partition": partition, "start_offset": start, "end_offset": end}
                for partition, (start, end) in sorted(ranges.items())
            ]
        try:
            row = self._ask("POST", "/api/v1/pins", body)
        except PinNotFound as error:  # That is what 404 is to the others.
            raise UnknownTopicOrPartition(str(error)) from error
        ttl_ms = int(row["expires_at_ms"]) - int(row["created_at_ms"])
        pin = TopicPin(
            pin_id=str(row["pin_id"]), topic=topic, topic_id=UUID(row["topic_id"]), ttl_ms=ttl_ms, held=_held(row)
        )
        _remember(pin)
        return pin

    def renew(self, pin: TopicPin) -> None:
        """Holds it for as long again as it held at first."""
        self._ask("PATCH", f"/api/v1/pins/{pin.pin_id}", {"ttl_ms": pin.ttl_ms})

    def release(self, pins: Sequence[TopicPin]) -> None:
        """Gives them up; where that fails they end by themselves, and it is no error."""
        for pin in pins:
            try:
                self._ask("DELETE", f"/api/v1/pins/{pin.pin_id}")
            except PinNotFound:
                pass
            except TieredError as error:
                log.warning("pin %s of topic %s ends by itself in a while: %s", pin.pin_id, pin.topic, error)

    def snapshot(self, name: str) -> Snapshot:
        """The snapshot of this name."""
        try:
            row = self._ask("GET", f"/api/v1/snapshots/{quote(name, safe='')}")
        except PinNotFound as error:
            raise PinNotFound(f"option snapshot: {error}; `tiered snapshot list` shows those there are") from error
        return Snapshot(topic=str(row["topic"]), topic_id=UUID(row["topic_id"]), held=_held(row))

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        try:
            return self._door.ask(method, path, body)
        except RefusedOverHttp as error:
            match error.status:
                case 404:
                    raise PinNotFound(str(error)) from error
                case 416:
                    raise OffsetOutOfRange(str(error)) from error
                case 429:
                    raise Throttled(str(error)) from error
            raise


def _now_s() -> float:
    return SystemClock().monotonic_ms() / 1000


def _remember(pin: TopicPin) -> None:
    if len(_renewed_s) >= _MAX_REMEMBERED:
        _renewed_s.clear()
    _renewed_s[pin.pin_id] = _now_s()


def _due_in_s(pin: TopicPin) -> float:
    """When to renew it; a pin that another process took is renewed at once."""
    last_s = _renewed_s.get(pin.pin_id)
    if last_s is None:
        return 0.0
    return max(0.0, last_s + pin.ttl_ms / 1000 / _RENEWALS_PER_LIFE - _now_s())


def _held(row: Mapping[str, Any]) -> dict[int, OffsetPair]:
    return {int(each["partition"]): (int(each["start_offset"]), int(each["end_offset"])) for each in row["partitions"]}


class Renewal:
    """A thread that renews pins until it is closed. A pin that has ended is reported once, and forgotten."""

    def __init__(self, door: PinDoor, pins: Sequence[TopicPin] = ()) -> None:
        self._door = door
        self._lock = threading.Lock()
        self._pins = tuple(pins)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tiered-pins", daemon=True)
        self._thread.start()

    @property
    def pins(self) -> tuple[TopicPin, ...]:
        """The pins that are renewed now."""
        with self._lock:
            return self._pins

    def replace(self, pins: Sequence[TopicPin]) -> tuple[TopicPin, ...]:
        """Renews these from now on; the answer is those from before."""
        with self._lock:
            before, self._pins = self._pins, tuple(pins)
        return before

    def close(self) -> None:
        """Renews no more. A request that is on its way ends by itself."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s()):
            for pin in self.pins:
                if self._over.is_set():
                    return
                self._renew(pin)

    def _pause_s(self) -> float:
        return min((_due_in_s(pin) for pin in self.pins), default=_IDLE_S)

    def _renew(self, pin: TopicPin) -> None:
        if _due_in_s(pin) > 0:
            return
        # Before the request, so that one which fails is not repeated at once.
        _remember(pin)
        try:
            self._door.renew(pin)
        except PinNotFound:
            log.warning("pin %s of topic %s has ended: retention may take what this query reads", pin.pin_id, pin.topic)
            with self._lock:
                self._pins = tuple(each for each in self._pins if each.pin_id != pin.pin_id)
        except TieredError as error:
            log.warning("pin %s of topic %s was not renewed; it is tried again later: %s", pin.pin_id, pin.topic, error)

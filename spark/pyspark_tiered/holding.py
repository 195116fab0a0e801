"""How a query uses pins: what a batch holds while it reads, and what a stream holds while it follows.

Owns the order in which pins are taken and given up: the new one first, always, so that nothing is free in between.
Must never let a query read a topic that is not the one it holds.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark_tiered.options import Assign, AtOffsets, Options, Subscribe
from pyspark_tiered.pins import OffsetPair, PinDoor, Renewal, TopicPin
from pyspark_tiered.plan import OffsetRange, OffsetVector, PartitionView, TopicAndPartition
from tiered.errors import InvalidConfig, OffsetOutOfRange, Retriable, UnknownTopicOrPartition
from tiered.peer.security import PLAINTEXT, ClientSecurity
from tiered.runtime import SystemClock

log = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 10.0

Views = Mapping[TopicAndPartition, PartitionView]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPins:
    """Pins on their way to tasks, which renew them while they read. None where nothing is to be held."""

    urls: tuple[str, ...] = ()
    pins: tuple[TopicPin, ...] = ()
    security: ClientSecurity = PLAINTEXT

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the pins from a thread of this process until the block ends."""
        if not self.pins:
            yield
            return
        renewal = Renewal(PinDoor(self.urls, self.security), self.pins)
        try:
            yield
        finally:
            renewal.close()


NOTHING_HELD = HeldPins()


def with_snapshot(options: Options) -> Options:
    """The options with the topic, partitions and offsets of their snapshot; as they are where they name none.

    Raises `InvalidConfig` when another topic is subscribed, and what `PinDoor` raises.
    """
    if options.snapshot is None:
        return options
    found = PinDoor(options.catalog, options.client.security).snapshot(options.snapshot)
    if options.selection not in (Subscribe(topics=()), Subscribe(topics=(found.topic,))):
        raise InvalidConfig(
            f"snapshot {options.snapshot} is of topic {found.topic}, and exactly of its partitions then: remove "
            "subscribe, subscribePattern and assign"
        )
    starts = {(found.topic, partition): start for partition, (start, _) in found.held.items()}
    ends = {(found.topic, partition): end for partition, (_, end) in found.held.items()}
    return replace(
        options,
        selection=Assign(partitions={found.topic: tuple(sorted(found.held))}),
        starting=AtOffsets(offsets=starts),
        ending=AtOffsets(offsets=ends),
    )


class BatchHold:
    """The pins of one batch query: all of its topics while it is planned, then its ranges.

    Without a metadata store it holds nothing, and every call does nothing.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity = PLAINTEXT) -> None:
        self._urls = tuple(urls)
        self._security = security
        self._pins: tuple[TopicPin, ...] = ()

    def take_all(self, views: Views) -> dict[TopicAndPartition, PartitionView]:
        """The views, no longer older than what is held: from now on retention takes nothing of them.

        Raises `UnknownTopicOrPartition` when a topic is another one by now, and what `PinDoor` raises.
        """
        if not self._urls:
            return dict(views)
        raised: dict[TopicAndPartition, PartitionView] = {}
        for topic in dict.fromkeys(topic for topic, _ in views):
            pin = self._door.take(topic)
            self._pins += (pin,)
            for key, view in views.items():
                if key[0] == topic:
                    raised[key] = _as_held(view, pin)
        return raised

    def keep(self, ranges: Sequence[OffsetRange]) -> HeldPins:
        """The pins that tasks renew, of these ranges alone. Pins for planning are given up."""
        if not self._urls:
            return NOTHING_HELD
        wanted = _by_topic({each.view.key: (each.start_offset, each.end_offset) for each in ranges})
        needless, kept = [], []
        for pin in self._pins:
            narrow = wanted.get(pin.topic)
            if narrow is None:
                needless.append(pin)
            elif narrow.keys() == pin.held.keys() and all(pin.held[each][0] == narrow[each][0] for each in narrow):
                kept.append(pin)
            else:
                kept.append(self._door.take(pin.topic, narrow))
                self._pins += (kept[-1],)
                needless.append(pin)
        self._door.release(needless)
        self._pins = tuple(kept)
        return HeldPins(urls=self._urls, pins=self._pins, security=self._security)

    @property
    def _door(self) -> PinDoor:
        return PinDoor(self._urls, self._security)

    def give_up(self) -> None:
        """Holds nothing any more: planning failed, or all is read."""
        if self._pins:
            self._door.release(self._pins)
        self._pins = ()


class StreamHold:
    """The pins of one stream: its position, which moves. Records after a held position stay too.

    A new pin is taken where a partition's is missing, and now and then as the stream goes on.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity = PLAINTEXT) -> None:
        self._door = PinDoor(urls, security)
        self._renewal: Renewal | None = None
        self._taken_s = float("-inf")
        self._failed_s = float("-inf")

    def keep(self, positions: OffsetVector, views: Views) -> None:
        """Holds what lies between the positions and the ends of the log.

        Raises what `PinDoor` raises while nothing is held yet; later, the stream goes on with what it holds.
        """
        wanted: dict[TopicAndPartition, OffsetPair] = {}
        for key, position in positions.items():
            view = views.get(key)
            if view is not None and max(position, view.log_start_offset) < view.end_offset:
                wanted[key] = (max(position, view.log_start_offset), view.end_offset)
        if not wanted or not self._is_due(wanted):
            return
        taken: list[TopicPin] = []
        try:
            for topic, ranges in _by_topic(wanted).items():
                taken.append(self._door.take(topic, ranges))
                for key in wanted:
                    if key[0] == topic:
                        _as_held(views[key], taken[-1])
        except (Retriable, OffsetOutOfRange) as error:
            self._door.release(taken)
            self._failed_s = SystemClock().monotonic_ms() / 1000
            # Reads find and report records that retention took before they could be held.
            if self._renewal is None and not isinstance(error, OffsetOutOfRange):
                raise
            log.warning("the stream's position could not be held anew; it is tried again later: %s", error)
            return
        if self._renewal is None:
            self._renewal = Renewal(self._door)
        self._taken_s = SystemClock().monotonic_ms() / 1000
        self._door.release(self._renewal.replace(taken))

    def close(self) -> None:
        """Gives up all that is held."""
        if self._renewal is not None:
            self._renewal.close()
            self._door.release(self._renewal.replace(()))
            self._renewal = None

    def _is_due(self, wanted: Mapping[TopicAndPartition, OffsetPair]) -> bool:
        now_s = SystemClock().monotonic_ms() / 1000
        if now_s - self._failed_s < _PAUSE_AFTER_FAILURE_S:
            return False
        pins = () if self._renewal is None else self._renewal.pins
        held = {(pin.topic, partition): start for pin in pins for partition, (start, _) in pin.held.items()}
        if any(key not in held for key in wanted):
            return True
        has_moved = any(start > held[key] for key, (start, _) in wanted.items())
        return has_moved and now_s - self._taken_s > min(pin.ttl_ms for pin in pins) / 2000


def _as_held(view: PartitionView, pin: TopicPin) -> PartitionView:
    """The view, which begins where the pin does. Raises `UnknownTopicOrPartition` when they are of two topics."""
    if view.topic_id is not None and view.topic_id != pin.topic_id:
        raise UnknownTopicOrPartition(
            f"topic {view.topic} was deleted and created again, and option catalog knows the new one alone: start "
            "again in a moment; to read the old one from the bucket, remove option catalog"
        )
    start = max(view.log_start_offset, pin.held.get(view.partition, (0, 0))[0])
    return replace(view, log_start_offset=start, end_offset=max(start, view.end_offset))


def _by_topic(wanted: Mapping[TopicAndPartition, OffsetPair]) -> dict[str, dict[int, OffsetPair]]:
    """The ranges of each topic that hold anything."""
    found: dict[str, dict[int, OffsetPair]] = {}
    for (topic, partition), (start, end) in wanted.items():
        if start < end:
            found.setdefault(topic, {})[partition] = (start, end)
    return found

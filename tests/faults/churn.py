"""A group of many consumers in several processes, under fire, and the audit of what they did.

Owns the processes, the records sent and the reading of the members' logs. `settled` is what every test waits for:
all partitions belong to members that live, and how long that took.
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import confluent_kafka

from tests.components.group_members import describe
from tests.faults.sites import Site
from tiered.wire.consumer_protocol import decode_assignment

GROUP, TOPIC = "churned", "churned"
ROOT = Path(__file__).resolve().parents[2]
HEARD_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a member's log: `numbers` are partitions, or a partition and its offsets."""

    kind: str
    at_s: float
    consumer: str
    numbers: tuple[int, ...]


class MemberProcess:
    """Some consumers in one process."""

    def __init__(self, churn: "Churn", name: str, size: int, *, static: bool) -> None:
        self.name = name
        self.count = size
        self.static = static
        self.log_path = churn.folder / f"{name}.log"
        options = {
            "bootstrap": churn.site.bootstrap,
            "topic": TOPIC,
            "group": GROUP,
            "name": name,
            "count": size,
            "static": static,
            "log": str(self.log_path),
            "config": dict(churn.config),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.group_member", json.dumps(options)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """A controlled end: its consumers leave the group."""
        self.process.terminate()
        assert self.process.wait(60) == 0

    def events(self) -> list[Event]:
        found = []
        for line in self.log_path.read_text().splitlines() if self.log_path.exists() else []:
            kind, at_s, consumer, *numbers = line.split()
            found.append(Event(kind=kind, at_s=float(at_s), consumer=consumer, numbers=tuple(map(int, numbers))))
        return found


class Churn:
    """The group, who coordinates it and the records that it is fed with. Used as a context."""

    def __init__(
        self,
        site: Site,
        folder: Path,
        *,
        partitions: int,
        records_per_second: int,
        config: Mapping[str, Any],
    ) -> None:
        self.site = site
        self.folder = folder
        self.partitions = partitions
        self.config = config
        self.members: dict[str, MemberProcess] = {}
        self.ended: list[MemberProcess] = []
        self.took_s: dict[str, list[float]] = defaultdict(list)
        """How long each kind of blow kept some partition from having a living owner."""
        self.sent: Counter[int] = Counter()
        self._records_per_second = records_per_second
        self._failures: list[object] = []
        self._numbers = count()
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self.site.create_topic(TOPIC, self.partitions)
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._sender.join()
        for member in self.members.values():
            member.kill()

    # Records

    def _send(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.site.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            if error is not None:
                self._failures.append(error)
            else:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.sent[partition] = max(self.sent[partition], offset + 1)

        number = 0
        while not self._stop.wait(0.05):
            for _ in range(max(1, self._records_per_second // 20)):
                producer.produce(TOPIC, b"%d" % number, partition=number % self.partitions, on_delivery=delivered)
                number += 1
            producer.poll(0)
        producer.flush(60)

    # Members

    def start(self, name: str, size: int, *, static: bool = False) -> MemberProcess:
        self.members[name] = member = MemberProcess(self, name, size, static=static)
        return member

    def take(self, name: str) -> MemberProcess:
        """The process is no member any more, whatever is done to it."""
        member = self.members.pop(name)
        self.ended.append(member)
        return member

    def kill_and_restart(self, name: str) -> None:
        """kill -9 of a process, and another one under the same names, at once."""
        old = self.members[name]
        old.kill()
        self.members[name] = MemberProcess(self, name, old.count, static=old.static)

    def returned(self, name: str, since_s: float, *, within_s: float) -> None:
        """Returns when every consumer of that process has been assigned something since."""
        while True:
            found = {
                event.consumer for event in self.members[name].events() if event.kind == "A" and event.at_s > since_s
            }
            if len(found) == self.members[name].count:
                return
            assert time.monotonic() - since_s < within_s, f"of {name} only {sorted(found)} are back"
            time.sleep(0.05)

    def new_name(self) -> str:
        return f"member{next(self._numbers)}"

    def oldest(self) -> str:
        return next(iter(self.members))

    @property
    def expected(self) -> int:
        return sum(member.count for member in self.members.values())

    def is_whole(self) -> bool:
        """Every partition has an owner, and every owner lives."""
        try:
            found = describe(self.site.coordinator_of(GROUP), GROUP)
        except OSError:
            return False
        if found.group_state != "Stable" or len(found.members) != self.expected:
            return False
        if {each.client_id.rpartition("-")[0] for each in found.members} != set(self.members):
            return False
        assigned = [
            partition
            for each in found.members
            if each.member_assignment
            for partition in decode_assignment(each.member_assignment).partitions.get(TOPIC, ())
        ]
        return sorted(assigned) == list(range(self.partitions))

    def settled(self, blow: str, since_s: float, *, within_s: float) -> float:
        """Returns when the group is whole, with the time since the blow; AssertionError if that takes longer."""
        while not self.is_whole():
            late = time.monotonic() - since_s > within_s
            assert not late, f"{blow}: not whole after {within_s} s\n{self.site.last_words()}"
            time.sleep(0.02)
        took_s = time.monotonic() - since_s
        self.took_s[blow].append(took_s)
        return took_s

    def quiet(self, for_s: float) -> tuple[float, float]:
        """A time in which nothing happens to the group; begins once its members have heard of the last change: they say
        that they own everything, and for a second nothing new. Ends when records flow."""
        began = time.monotonic()
        while not self.have_heard():
            assert time.monotonic() - began < HEARD_S, "members have not heard of the last change, or they hear of more"
            time.sleep(0.2)
        start_s = time.monotonic()
        time.sleep(for_s)
        while not self.processed(self.events(), start_s):
            assert time.monotonic() - began < HEARD_S, "no record was processed"
            time.sleep(0.2)
        return start_s, time.monotonic()

    def have_heard(self) -> bool:
        found: dict[str, set[int]] = defaultdict(set)
        changes = self.changes([event for each in self.members.values() for event in each.events()])
        for event in changes:
            if event.kind == "A":
                found[event.consumer].update(event.numbers)
            else:
                found[event.consumer].difference_update(event.numbers)
        owned = sorted(partition for each in found.values() for partition in each)
        return owned == [*range(self.partitions)] and max(each.at_s for each in changes) < time.monotonic() - 1.0

    # The audit

    def events(self) -> list[Event]:
        """Of all processes that ever were, by time."""
        found = [event for member in (*self.ended, *self.members.values()) for event in member.events()]
        return sorted(found, key=lambda event: event.at_s)

    def drain(self, timeout_s: float = 60.0) -> None:
        """Sends no more, and returns when everything that was acknowledged has been processed."""
        self._stop.set()
        self._sender.join()
        assert not self._failures, self._failures[:3]
        deadline = time.monotonic() + timeout_s
        while missing := self.missing():
            assert time.monotonic() < deadline, f"{len(missing)} records were never processed, such as {missing[:5]}"
            time.sleep(0.5)

    def missing(self) -> list[tuple[int, int]]:
        seen = self.processed(self.events())
        sent = ((partition, offset) for partition, end in self.sent.items() for offset in range(end))
        return [each for each in sent if each not in seen]

    @staticmethod
    def processed(events: list[Event], start_s: float = 0.0, end_s: float = float("inf")) -> Counter[tuple[int, int]]:
        """How often each record was processed in that time."""
        return Counter(
            (event.numbers[0], offset)
            for event in events
            if event.kind == "R" and start_s <= event.at_s < end_s
            for offset in event.numbers[1:]
        )

    @staticmethod
    def changes(events: list[Event], start_s: float = 0.0, end_s: float = float("inf")) -> list[Event]:
        """Assignments, revocations and losses in that time."""
        return [event for event in events if event.kind != "R" and start_s <= event.at_s < end_s]

    @staticmethod
    def check_order(events: list[Event]) -> None:
        """Between two changes of what it owns, a consumer never meets a record twice, nor goes back."""
        last: dict[tuple[str, int], int] = {}
        for event in events:
            if event.kind == "R":
                for offset in event.numbers[1:]:
                    key = event.consumer, event.numbers[0]
                    assert offset > last.get(key, -1), f"{event.consumer} met {key[1]}-{offset} after {last[key]}"
                    last[key] = offset
            else:
                for partition in event.numbers:
                    last.pop((event.consumer, partition), None)

    def check_quiet(self, events: list[Event], quiet: tuple[float, float]) -> int:
        """Nothing changed hands, and no record was processed twice. How many there were."""
        assert (changed := self.changes(events, *quiet)) == [], changed
        counts = self.processed(events, *quiet)
        assert counts, "records flowed"
        assert set(counts.values()) == {1}
        return len(counts)

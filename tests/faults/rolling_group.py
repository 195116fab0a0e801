"""Groups of real consumers in processes of their own, and the proof of what they processed.

Starts and ends the processes of `tests.faults.group_worker`, and reads their files. Must never consume itself.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from tests.faults.group_load import DEADLINE_S, Place

NOTED_S = 0.5


class _Log:
    """One consumer's file, read on from where it was read before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._events: list[list[Any]] = []
        self._position = 0

    @property
    def name(self) -> str:
        return self.path.stem

    def events(self) -> list[list[Any]]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._position += whole
            self._events += [json.loads(line) for line in data[:whole].splitlines()]
        return self._events


class Worker:
    """One process with some consumers."""

    def __init__(self, process: "subprocess.Popen[bytes]", logs: list[Path]) -> None:
        self.process = process
        self.logs = [_Log(each) for each in logs]
        self.gone_at: float | None = None

    def stop(self) -> None:
        """A clean end: every consumer leaves the group. Does not wait."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        assert self.process.wait(DEADLINE_S) == 0
        self.gone_at = time.monotonic()

    def kill(self) -> None:
        """kill -9: its consumers fall silent."""
        self.process.kill()
        self.process.wait()
        self.gone_at = time.monotonic()


class Group:
    """Starts and ends workers of one group on one topic, and reads what they did."""

    def __init__(
        self, bootstrap: str, group_id: str, topic: str, folder: Path, *, common: Mapping[str, Any] | None = None
    ) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._folder = folder
        self._common = dict(common or {})
        self._count = 0
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.kill()

    def start(self, consumers: int = 1, *, static: Iterable[str] | None = None, **settings: Any) -> Worker:
        """A process with so many consumers; `static` names their instance ids; settings with _ for the dots."""
        names = list(static) if static is not None else [None] * consumers
        made = []
        for instance_id in names:
            self._count += 1
            found: dict[str, Any] = {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group_id,
                "client.id": f"c{self._count}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "fetch.wait.max.ms": 200,
                "log_level": 0,
                **self._common,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
            if instance_id is not None:
                found["group.instance.id"] = instance_id
            made.append((found, str(self._folder / f"c{self._count}.log")))
        told = json.dumps({"topic": self.topic, "consumers": made})
        process = subprocess.Popen([sys.executable, "-m", "tests.faults.group_worker", told])
        worker = Worker(process, [Path(log) for _, log in made])
        self._workers.append(worker)
        return worker

    # What they did

    def events(self) -> list[list[list[Any]]]:
        """The events of each consumer, in order."""
        return [log.events() for worker in self._workers for log in worker.logs]

    def processed(self) -> Counter[Place]:
        """How often each record was processed."""
        return Counter(
            (int(partition), offset)
            for events in self.events()
            for event in events
            if event[0] == "did"
            for partition, offsets in event[2].items()
            for offset in offsets
        )

    def owners(self) -> dict[int, list[str]]:
        """Who has each partition now, by the names of their files. What killed workers had is nobody's."""
        found: dict[int, list[str]] = {}
        for worker in self._workers:
            if worker.gone_at is not None:
                continue
            for log in worker.logs:
                for partition in _held(log.events()):
                    found.setdefault(partition, []).append(log.name)
        return found

    def wait_members(self, count: int, partitions: int, *, timeout_s: float = DEADLINE_S) -> float:
        """Returns when each partition has exactly one living owner, and so many members own something: when (by the
        monotonic clock) the last of them got its last partition."""

        def spread() -> bool:
            owners = self.owners()
            return (
                len(owners) == partitions
                and all(len(each) == 1 for each in owners.values())
                and len({each[0] for each in owners.values()}) == count
            )

        wait(spread, f"{partitions} partitions spread over {count} members", timeout_s=timeout_s)
        living = [log for worker in self._workers if worker.gone_at is None for log in worker.logs]
        return max(float(event[1]) for log in living for event in log.events() if event[0] == "assigned" and event[2])

    def wait_again(self, count: int, partitions: int, *, since: float) -> float:
        """Returns when every living consumer has committed at the coordinator that came after `since`, and each
        partition has one owner: when the last of them did."""

        def commits(log: _Log) -> list[float]:
            # What the one before had acknowledged may be noted a moment later.
            return [float(event[1]) for event in log.events() if event[0] == "committed" and event[1] > since + NOTED_S]

        living = [log for worker in self._workers if worker.gone_at is None for log in worker.logs]
        wait(lambda: all(commits(log) for log in living), "everybody has found the new coordinator")
        self.wait_members(count, partitions)
        return max(commits(log)[0] for log in living)

    def changes(self, *, since: float) -> list[list[Any]]:
        """What consumers lost, gave up or were given after that time."""
        return [
            event
            for events in self.events()
            for event in events
            if event[0] in ("lost", "revoked", "assigned") and event[1] > since
        ]

    def wait_processed(self, places: Iterable[Place], *, timeout_s: float = DEADLINE_S) -> Counter[Place]:
        """Returns once every one of these records was processed: how often each record was."""
        wanted = set(places)
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.processed()
            missing = wanted - found.keys()
            if not missing:
                return found
            assert time.monotonic() < deadline, f"{len(missing)} never processed, such as {sorted(missing)[:5]}"
            time.sleep(0.1)

    def check_commits(self, end: Mapping[int, int]) -> int:
        """Whoever gets a partition begins at or after what was acknowledged before, and nothing of it is lost in the
        `end`. How many commits there were."""
        commits: dict[int, list[tuple[float, int]]] = {}
        for events in self.events():
            for event in events:
                if event[0] == "committed":
                    for partition, offset in event[2].items():
                        commits.setdefault(int(partition), []).append((event[1], offset))
        for partition, found in commits.items():
            assert end[partition] >= max(offset for _, offset in found), f"partition {partition}: a commit was lost"
        for events in self.events():
            since: dict[int, float] = {}
            for event in events:
                if event[0] == "assigned":
                    since |= dict.fromkeys(event[2], event[1])
                elif event[0] == "did":
                    for partition, offsets in ((int(name), each) for name, each in event[2].items()):
                        if partition in since:
                            assigned_at = since.pop(partition)
                            before = [offset for at, offset in commits.get(partition, ()) if at < assigned_at]
                            assert offsets[0] >= max(before, default=0), f"partition {partition} went back"
        return sum(map(len, commits.values()))

    def check_overlaps(self) -> None:
        """No partition was used by two at once. Who is killed has what it had until then."""
        spans: dict[int, list[tuple[float, float, str]]] = {}
        for worker in self._workers:
            end = worker.gone_at or float("inf")
            for log in worker.logs:
                for partition, start, stop in _spans(log.events(), end):
                    spans.setdefault(partition, []).append((start, stop, log.name))
        for partition, found in spans.items():
            found.sort()
            for (_, stop, who), (start, _, other) in pairwise(found):
                assert stop <= start, f"partition {partition}: {other} has it while {who} still has"

    def check_runs(self) -> None:
        """Whoever has a partition processes it without gaps and nothing twice, from getting it to losing it."""
        for events in self.events():
            following: dict[int, int] = {}
            for event in events:
                if event[0] in ("assigned", "revoked", "lost"):
                    for partition in event[2]:
                        following.pop(partition, None)
                elif event[0] == "did":
                    for name, offsets in event[2].items():
                        expected = following.get(int(name), offsets[0])
                        assert offsets == list(range(expected, expected + len(offsets))), f"partition {name}: {offsets}"
                        following[int(name)] = offsets[-1] + 1


def _held(events: list[list[Any]]) -> set[int]:
    held: set[int] = set()
    for event in events:
        if event[0] == "assigned":
            held |= set(event[2])
        elif event[0] in ("revoked", "lost"):
            held -= set(event[2])
    return held


def _spans(events: list[list[Any]], end: float) -> Iterable[tuple[int, float, float]]:
    since: dict[int, float] = {}
    for event in events:
        if event[0] == "assigned":
            since |= dict.fromkeys(event[2], event[1])
        elif event[0] in ("revoked", "lost"):
            for partition in event[2]:
                if partition in since:
                    yield partition, since.pop(partition), event[1]
    for partition, start in since.items():
        yield partition, start, end


def wait(condition: Callable[[], bool], what: str, *, timeout_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)

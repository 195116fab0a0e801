"""The clients of a cluster under test, in a process of their own, told what to do line by line.

Owns the cast: who sends, who reads, and who together must see every record. Run as
`python -m tests.cluster.workload_process OPTIONS`, where the options are JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.cluster.history import HistoryWriter, Kind
from tests.cluster.readers import Reader, ReaderPlan
from tests.cluster.senders import PATIENT, Sender, SenderPlan
from tests.cluster.transaction_workload import TransactionWorkload
from tests.faults.ledger import watermarks

PROBER = 4
INPUTS_SHARE = 0.2
"""Inputs for transactions, beside the records of all producers but the prober."""
BRIEF = ("soak-brief", 0)
"""Its records go soon, and are never read: uploads, retention and deletions have work there to the very end."""
BRIEF_SENDER, BRIEF_PER_SECOND = 5, 15.0
CLASSIC_GROUP, NEW_GROUP = 201, 202
WATCHERS = (frozenset({101}), frozenset({102}), frozenset({111, 112}), frozenset({121}))
"""Each of these sets sees every record: two by assignment, two groups."""
NAMES = {
    1: "idempotent, patient",
    2: "idempotent, crashes every few seconds",
    3: "acks=1",
    PROBER: "prober",
    101: "from leaders",
    102: "from followers",
    111: "group, first member",
    112: "group, second member",
    121: "group of the new protocol",
}


def senders(per_second: float, partitions: int, probes_per_second: float) -> list[SenderPlan]:
    return [
        SenderPlan(client=1, per_second=per_second * 0.5, config={**PATIENT, "linger.ms": 20}),
        SenderPlan(
            client=2,
            per_second=per_second * 0.3,
            renewed_every_s=7.0,
            config={**PATIENT, "linger.ms": 5, "compression.type": "lz4"},
        ),
        SenderPlan(
            client=3,
            per_second=per_second * 0.2,
            kind=Kind.SEND_ACKS_1,
            config={"acks": 1, "enable.idempotence": False, "linger.ms": 5, "delivery.timeout.ms": 8000},
        ),
        SenderPlan(
            client=PROBER,
            per_second=probes_per_second * partitions,
            value_bytes=16,
            config={**PATIENT, "linger.ms": 0},
        ),
    ]


def readers(followers_rack: str) -> list[ReaderPlan]:
    session = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
    return [
        ReaderPlan(client=101),
        ReaderPlan(client=102, config={"client.rack": followers_rack}),
        ReaderPlan(client=111, group="soak", group_client=CLASSIC_GROUP, config=session),
        ReaderPlan(client=112, group="soak", group_client=CLASSIC_GROUP, config=session),
        ReaderPlan(client=121, group="soak-new", group_client=NEW_GROUP, config={"group.protocol": "consumer"}),
    ]


class Workload:
    """Everything that runs against one cluster."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._bootstrap: str = options["bootstrap"]
        self._partitions = [(topic, partition) for topic, partition in options["partitions"]]
        self._history = HistoryWriter(Path(options["history"]))
        self._senders = [
            Sender(plan, self._bootstrap, self._partitions, self._history)
            for plan in senders(options["per_second"], len(self._partitions), options["probes_per_second"])
        ]
        self._readers = [
            Reader(plan, self._bootstrap, self._partitions, self._history) for plan in readers(options["rack"])
        ]
        brief = SenderPlan(client=BRIEF_SENDER, per_second=BRIEF_PER_SECOND, config={**PATIENT, "linger.ms": 20})
        self._brief_history = HistoryWriter(Path(options["history"]).with_name("brief"))
        self._brief = Sender(brief, self._bootstrap, [BRIEF], self._brief_history)
        self._transactions = TransactionWorkload(
            self._bootstrap,
            Path(options["transactions"]),
            per_second=options["per_second"] * INPUTS_SHARE,
            followers_rack=options["rack"],
            java=options["java"],
        )

    def start(self) -> None:
        for thread in (*self._senders, *self._readers, self._brief):
            thread.start()
        self._transactions.start()

    def progress(self) -> dict[str, Any]:
        """Acknowledged by sender, positions by reader, and what went wrong."""
        transactions = self._transactions
        return {
            "acknowledged": {sender.plan.client: sender.acknowledged for sender in self._senders},
            "read": {reader.plan.client: sum(reader.positions.values()) for reader in self._readers},
            "all_read": not self._behind(dict.fromkeys(range(len(self._partitions)), 1)),
            "fatal": [words for sender in (*self._senders, self._brief, transactions.sender) for words in sender.fatal],
            "errors": [words for reader in (*self._readers, *transactions.readers) for words in reader.errors],
            "loops": transactions.lives(),
        }

    def settle(self) -> None:
        """From now on no instance of a loop of transactions is replaced."""
        self._transactions.settle()

    def stop_sending(self, timeout_s: float) -> int:
        """How many records have no outcome although all faults are over."""
        self.settle()
        return sum(sender.finish(timeout_s) for sender in (*self._senders, self._transactions.sender))

    def drain(self, patience_s: float) -> dict[str, Any]:
        """Waits until everyone has read everything; who has not, and where they stand."""
        unfinished = self._transactions.drain(patience_s)
        ends = self._ends()
        deadline = time.monotonic() + patience_s
        while (behind := self._behind(ends)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return {"ends": ends, "behind": behind + unfinished}

    def _behind(self, ends: dict[int, int]) -> list[str]:
        by_client = {reader.plan.client: reader for reader in self._readers}
        found = []
        for watchers in WATCHERS:
            for index, end in ends.items():
                at = max(by_client[client].positions.get(index, 0) for client in watchers)
                if at < end:
                    topic, partition = self._partitions[index]
                    found.append(f"{sorted(watchers)} at {at} of {end} in {topic}-{partition}")
        return found

    def _ends(self) -> dict[int, int]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "ends", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            return {
                index: watermarks(consumer, topic, partition)[1]
                for index, (topic, partition) in enumerate(self._partitions)
            }
        finally:
            consumer.close()

    def stop(self) -> None:
        """Everything ends; sends without an outcome are unknown."""
        self.stop_sending(1.0)
        self._brief.finish(1.0)
        self._brief_history.close()
        for reader in self._readers:
            reader.finish()
        self._transactions.stop()
        self._history.close()


def main(options: dict[str, Any]) -> None:
    workload = Workload(options)
    workload.start()
    for line in sys.stdin:
        order = json.loads(line)
        answer: Any = None
        match order["do"]:
            case "progress":
                answer = workload.progress()
            case "settle":
                workload.settle()
            case "stop_sending":
                answer = workload.stop_sending(order["timeout_s"])
            case "drain":
                answer = workload.drain(order["patience_s"])
            case "stop":
                workload.stop()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

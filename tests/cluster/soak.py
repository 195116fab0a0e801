"""`make soak MINUTES=n`: a cluster under rotating faults, its clients, and the verdict on what they saw.

Owns the order of a run: start, rounds of faults, healing, the last reads, the evidence, the report. Exit code 1 on any
violation or complaint; the folder with every process's log is kept then.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.checker import check
from tests.cluster.child import Child
from tests.cluster.evidence import read_partitions
from tests.cluster.history import read_history
from tests.cluster.java_loop import java_command
from tests.cluster.nemesis import FAULTS, LONG_FAULTS, SMALL_DISK_OF, Fault, Nemesis, draw_round
from tests.cluster.processes import ClusterProcesses
from tests.cluster.soak_report import SoakFigures, silences_s
from tests.cluster.transaction_checks import LoopGroup, check_transactions
from tests.cluster.transaction_workload import CONFIGS as TRANSACTION_CONFIGS
from tests.cluster.transaction_workload import (
    GROUPS,
    GROUPS_WITH_JAVA,
    INPUT,
    INPUTS,
    INPUTS_HISTORY,
    JAVA_LOOPS,
    LOOPS_HISTORIES,
    OUTPUTS,
    READERS,
    READS_HISTORY,
)
from tests.cluster.upkeep import Upkeep
from tests.cluster.workload_process import BRIEF, PROBER, WATCHERS
from tests.support.small_disks import may_mount

HOT, COLD = "soak-hot", "soak-cold"
CONFIGS = {
    # Both tiers keep everything: each byte is compared.
    HOT: {"segment.bytes": "300000", "local.retention.ms": "-1", "retention.ms": "-1"},
    # The past is cold alone: consumers and replicas that come back read it from there.
    COLD: {"segment.bytes": "150000", "local.retention.bytes": "1", "retention.ms": "-1"},
}
BRIEF_CONFIG = {
    "segment.bytes": "10000",
    "local.retention.bytes": "1",
    "retention.bytes": "30000",
    "tiered.purge.grace.ms": "1000",
}
PARTITIONS_EACH = 2
SETTINGS: dict[str, object] = {
    "log.retention.check.interval.ms": 2000,
    "tiered.sweep.interval.ms": 5000,
    "tiered.upload.timeout.ms": 20_000,
    "tiered.reconcile.interval.ms": 2000,
    "tiered.reconcile.period.ms": 10_000,
    "replica.lag.time.max.ms": 10_000,
    # A clock that jumps back refuses no record. librdkafka takes a new epoch at such a refusal, and sends again what it
    # has under way on other partitions, where it may stand already if a broker is killed meanwhile (librdkafka #4953).
    "log.message.timestamp.after.max.ms": 4 * 86_400_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
PROBES_PER_SECOND = 5.0
ROUND_S = 30.0
HEALING_S = 90.0
LONG_RUN_MINUTES = 10.0


class Soak:
    """One run in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        minutes: float,
        seed: int,
        per_second: float = 60.0,
        brokers: int = 3,
        faults: Sequence[Fault] = FAULTS,
        settings: Mapping[str, object] | None = None,
        round_s: float = ROUND_S,
        java: Sequence[str] = (),
    ) -> None:
        """`java` is the command of a loop of Java's client; without one there are none."""
        self.folder = folder
        self.partitions = [(topic, partition) for topic in CONFIGS for partition in range(PARTITIONS_EACH)]
        self.figures = SoakFigures(
            seed=seed, minutes=minutes, brokers=brokers, partitions=len(self.partitions), per_second=per_second
        )
        self._chance = random.Random(seed)
        wants_small_disk = any(fault.broker_id == SMALL_DISK_OF for fault in faults)
        self._has_small_disk = wants_small_disk and may_mount()
        self._lacks_small_disk = wants_small_disk and not self._has_small_disk
        self._faults = [fault for fault in faults if self._has_small_disk or fault.broker_id != SMALL_DISK_OF]
        self._settings = {**SETTINGS, **(settings or {})}
        self._round_s = round_s
        self._java = java
        self._transactions = folder / "transactions"

    def run(self) -> SoakFigures:
        """The figures, whatever happened: what could not be done is a complaint among them."""
        self._transactions.mkdir(parents=True, exist_ok=True)
        figures = self.figures
        with ClusterProcesses(
            self.folder,
            brokers=figures.brokers,
            settings=self._settings,
            seed=figures.seed,
            small_disk_of=SMALL_DISK_OF if self._has_small_disk else None,
        ) as cluster:
            for step in (self._begin, self._live, self._judge):
                try:
                    step(cluster)
                except Exception as error:
                    figures.complaints.append(f"{type(error).__name__}: {error}"[:6000])
                    if step is self._begin:
                        break
        return figures

    def _begin(self, cluster: ClusterProcesses) -> None:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = [NewTopic(topic, PARTITIONS_EACH, self.figures.brokers, config=CONFIGS[topic]) for topic in CONFIGS]
        topics.append(NewTopic(BRIEF[0], 1, self.figures.brokers, config=BRIEF_CONFIG))
        for topic, config in TRANSACTION_CONFIGS.items():
            count = sum(name == topic for name, _ in (*INPUTS, *OUTPUTS))
            topics.append(NewTopic(topic, count, self.figures.brokers, config=config))
        for future in admin.create_topics(topics, operation_timeout=30).values():
            future.result(60)

    def _live(self, cluster: ClusterProcesses) -> None:
        options = {
            "bootstrap": cluster.bootstrap,
            "partitions": self.partitions,
            "history": str(self.folder / "history"),
            "transactions": str(self._transactions),
            "per_second": self.figures.per_second,
            "probes_per_second": PROBES_PER_SECOND,
            "rack": "rack-2",
            "java": self._java,
        }
        with Child("tests.cluster.workload_process", json.dumps(options), log=self.folder / "workload.log") as clients:
            try:
                self._wait_for_reads(clients)
                self._rounds(cluster, clients)
                self._heal(cluster, clients)
            finally:
                clients.ask({"do": "stop"})

    def _wait_for_reads(self, clients: Child) -> None:
        deadline = time.monotonic() + 60
        while not (progress := clients.ask({"do": "progress"}))["all_read"]:
            assert time.monotonic() < deadline, f"clients did not begin within a minute: {progress}"
            time.sleep(0.2)

    def _rounds(self, cluster: ClusterProcesses, clients: Child) -> None:
        nemesis = Nemesis(cluster, self._chance)
        figures = self.figures
        if self._lacks_small_disk:
            self._note("no small disk is filled: this user may not mount one")
        ends = time.monotonic() + figures.minutes * 60
        while time.monotonic() < ends:
            began = time.monotonic()
            strikes = draw_round(self._chance, cluster.ids, self._round_s, self._faults)
            self._note(f"round {figures.rounds}: {', '.join(each.words() for each in strikes) or 'no fault'}")
            nemesis.carry_out(strikes)
            figures.rounds += 1
            figures.quiet_rounds += not strikes
            healed = time.monotonic()
            while time.monotonic() - began < self._round_s and not cluster.is_in_sync():
                time.sleep(0.1)
            if strikes and cluster.is_in_sync():
                figures.catch_up_s.append(time.monotonic() - healed)
            if began + self._round_s >= ends:
                clients.ask({"do": "settle"})  # Healing need not wait for the sessions of killed members.
            time.sleep(max(0.0, began + self._round_s - time.monotonic()))
            self._look_at_memory(cluster)
            figures.faults = dict(nemesis.counts)
        figures.complaints += nemesis.failures

    def _look_at_memory(self, cluster: ClusterProcesses) -> None:
        """Of the brokers that can be asked just now; those that a fault has stopped are asked after the next round."""
        for broker_id in cluster.ids:
            if not cluster.runs(broker_id) or broker_id in cluster.paused:
                continue
            broker = cluster.brokers[broker_id]
            try:
                resident_bytes = broker.metric("process_resident_memory_bytes")
                pause_ms = 1000 * broker.metric("tiered_garbage_max_pause_seconds")
                self.figures.take_memory(broker.pid, resident_bytes, pause_ms)
            except OSError as error:
                self._note(f"broker {broker_id} does not say how much memory it has: {error}")

    def _heal(self, cluster: ClusterProcesses, clients: Child) -> None:
        figures = self.figures
        cluster.heal()
        for broker_id in cluster.ids:
            if not cluster.runs(broker_id):
                cluster.start(broker_id)
        began = time.monotonic()
        cluster.wait_until(cluster.is_in_sync, "every replica is in sync after healing", timeout_s=HEALING_S)
        self._look_at_memory(cluster)
        figures.catch_up_s.append(time.monotonic() - began)
        if stuck := clients.ask({"do": "stop_sending", "timeout_s": HEALING_S}):
            figures.complaints.append(f"{stuck} records had no outcome {HEALING_S:g} s after healing")
        drained = clients.ask({"do": "drain", "patience_s": HEALING_S})
        figures.complaints += [
            f"not done after healing, and nothing moved for {HEALING_S:g} s: {words}" for words in drained["behind"]
        ]
        progress = clients.ask({"do": "progress"})
        figures.complaints += [f"a producer ended: {words}" for words in progress["fatal"]]
        self._note(f"errors of readers: {progress['errors']}")
        self._note(f"ends of loops: {progress['loops']}")
        upkeep = Upkeep(cluster, BRIEF[0])
        figures.complaints += upkeep.wait(HEALING_S)
        self._note(f"objects that wait because their deletion was refused: {upkeep.refused}")
        # Replicas have everything by now; what a leader has not yet uploaded stays hot.
        cluster.wait_until(cluster.is_in_sync, "every replica is in sync before the end", timeout_s=HEALING_S)
        time.sleep(2.0)

    def _judge(self, cluster: ClusterProcesses) -> None:
        figures = self.figures
        cluster.heal()
        for broker_id in cluster.ids:
            if cluster.runs(broker_id):
                try:
                    cluster.stop(broker_id)
                except Exception as error:
                    figures.complaints.append(f"broker {broker_id} did not stop: {error!r}"[:3000])
                    cluster.kill(broker_id)
        figures.store_requests = cluster.store.counts()
        rows = [row for row in cluster.partition_rows() if (row.name, row.partition) in self.partitions]
        if len(rows) != len(self.partitions):
            figures.complaints.append(f"only {len(rows)} of the run's partitions are in SQL")
            return
        figures.elections = sum(row.leader_epoch for row in rows)
        figures.partition_changes = sum(row.partition_epoch for row in rows)
        data = {broker_id: broker.data for broker_id, broker in cluster.brokers.items()}
        evidence = read_partitions(cluster.engine, self.partitions, data, cluster.store.get)
        history = list(read_history(self.folder / "history"))
        figures.take(check(history, evidence, WATCHERS))
        self._judge_transactions(cluster, data)
        silences = silences_s(history, PROBER, period_s=1 / PROBES_PER_SECOND)
        figures.unavailability_s = [seconds for each in silences.values() for _, seconds in each]

    def _judge_transactions(self, cluster: ClusterProcesses, data: dict[int, Path]) -> None:
        inputs = read_partitions(cluster.engine, INPUTS, data, cluster.store.get)
        outputs = read_partitions(cluster.engine, OUTPUTS, data, cluster.store.get)
        sent = check(read_history(self._transactions / INPUTS_HISTORY), inputs, [])
        histories = [self._transactions / READS_HISTORY, *sorted(self._transactions.glob(LOOPS_HISTORIES))]
        history = [operation for path in histories for operation in read_history(path)]
        groups = [
            LoopGroup(clients=clients, committed_offsets=cluster.committed_offsets(group, INPUT))
            for group, clients in (GROUPS_WITH_JAVA if self._java else GROUPS).items()
        ]
        verdict = check_transactions(history, inputs, outputs, groups, READERS)
        self.figures.take_transactions(sent, verdict)
        if self._java:
            self.figures.take_java(history, JAVA_LOOPS)
        if left := cluster.open_transactions():
            self.figures.complaints.append(f"transactions are open at the end: {left}")

    def _note(self, words: str) -> None:
        line = f"{time.strftime('%H:%M:%S', time.gmtime())} {words}"
        print(line, flush=True)
        with (self.folder / "rounds.log").open("a") as file:
            file.write(line + "\n")


def write_report(figures: SoakFigures, folder: Path) -> Path:
    """Writes soak.md and soak.json; the path of the former."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(figures.to_json(), indent=2) + "\n")
    path = folder / "soak.md"
    path.write_text(figures.to_markdown())
    return path


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="Rotating faults, and the proof that nothing broke.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--per-second", type=float, default=60.0, help="records of all producers but the prober (60)")
    parser.add_argument("--only", action="append", help="a word in the names of the faults to use; may be repeated")
    parser.add_argument("--java", action="store_true", help="loops of Apache Kafka's Java client too (Java 17, Maven)")
    parser.add_argument("--folder", type=Path, help="where everything is kept (a temporary folder, kept on failure)")
    parser.add_argument("--results", type=Path, default=Path("soak-results"))
    options: Any = parser.parse_args(argv)
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="tiered-soak-"))
    known = FAULTS if options.minutes < LONG_RUN_MINUTES else (*FAULTS, *LONG_FAULTS)
    faults = [each for each in known if not options.only or any(word in each.name for word in options.only)]
    print(f"seed {options.seed}, everything in {folder}", flush=True)
    java = java_command(folder / "java") if options.java else ()
    run = Soak(
        folder, minutes=options.minutes, seed=options.seed, per_second=options.per_second, faults=faults, java=java
    )
    figures = run.run()
    path = write_report(figures, options.results)
    print(f"\n{figures.to_markdown()}\nthe report is in {path}")
    if not figures.passed:
        print(f"logs, history and data are kept in {folder}")
    elif options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if figures.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

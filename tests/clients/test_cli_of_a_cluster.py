"""`tiered brokers`, `tiered topics reassign` and its siblings with three real brokers; and `tiered cluster up`."""

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.transactional_producers import begun, send
from tiered import __version__
from tiered.cli import main
from tiered.cli.client.cluster import existing_topic
from tiered.cli.topics.delete_records import Cut, execute_cuts, failures_of
from tiered.peer import EARLIEST, Cluster

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]

WAIT_S = 60.0
LINES = 500


class Command:
    """Runs commands against the cluster in this process, and gives what they print."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._folder = folder

    def __call__(self, *argv: str, code: int = 0) -> str:
        self._capsys.readouterr()
        ended = main([*argv, "--bootstrap", self._bootstrap])
        captured = self._capsys.readouterr()
        assert ended == code, captured.out + captured.err
        return captured.err if code else captured.out

    def lines(self, *argv: str, code: int) -> list[str]:
        """What a command that has something to complain of prints on stdout."""
        self._capsys.readouterr()
        assert main([*argv, "--bootstrap", self._bootstrap]) == code
        return self._capsys.readouterr().out.splitlines()

    def json(self, *argv: str) -> Any:
        return json.loads(self(*argv, "--json"))

    def fill(self, topic: str) -> None:
        path = self._folder / "lines"
        path.write_text("".join(f"{number}\n" for number in range(LINES)))
        self("produce", topic, str(path))

    def values(self, topic: str) -> list[int]:
        return sorted(map(int, self("consume", topic).split()))

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        (found,) = self.json("topics", "describe", topic)
        partitions: list[dict[str, Any]] = found["partitions"]
        return partitions

    def replicas(self, topic: str) -> list[list[int]]:
        return [each["replicas"] for each in self.partitions(topic)]


@pytest.fixture
def tiered(three_brokers: "ThreeBrokers", capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(three_brokers.bootstrap, capsys, tmp_path)


def eventually(what: Callable[[], bool], why: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def test_transactions_of_every_coordinator_are_listed_described_and_aborted(
    tiered: Command, three_brokers: "ThreeBrokers"
) -> None:
    tiered("topics", "create", "bought", "-p", "3", "--replication-factor", "2")
    # Slots 45 to 49 and 0: the last and the first have different brokers, in whatever order these have joined.
    names = [f"buyer-{number}" for number in range(12, 18)]
    producers = [begun(three_brokers.bootstrap, name, "bought") for name in names]
    for each in producers:
        send(each, "bought", "more", partition=2)

    def coordinators(*words: str) -> dict[str, int]:
        return {each["transactional_id"]: each["coordinator"] for each in tiered.json("transactions", *words)}

    def listed() -> dict[str, int]:
        return coordinators("list", "--state", "ongoing")

    assert sorted(listed()) == names
    # Brokers that have just joined are given slots, and with them transactions.
    eventually(lambda: len(set(listed().values())) > 1, listed)
    eventually(lambda: coordinators("describe", *names) == listed(), listed)
    for each in tiered.json("transactions", "describe", *names):
        assert each["partitions"] == [{"topic": "bought", "partition": number} for number in (0, 2)]
    assert tiered.json("transactions", "find-hanging", "--topic", "bought") == []
    assert [each["changed"] for each in tiered.json("transactions", "abort", *names)] == [True] * 6
    assert tiered.json("transactions", "list", "--state", "ongoing") == []
    late = tiered.json("transactions", "find-hanging", "--topic", "bought", "--max-transaction-timeout", "1s")
    assert late == [], "each partition has its markers"


def test_each_leader_deletes_the_records_of_its_partitions(tiered: Command) -> None:
    tiered("topics", "create", "emptied", "-p", "3", "--replication-factor", "2")
    tiered.fill("emptied")
    ends = {each["partition"]: each["high_watermark"] for each in tiered.partitions("emptied")}
    assert len({each["leader"] for each in tiered.partitions("emptied")}) == 3
    done = tiered("topics", "delete-records", "emptied", "--before", "end", "--execute")
    assert done.endswith(f"\n{LINES} offsets of emptied deleted\n")
    assert {each["partition"]: each["log_start_offset"] for each in tiered.partitions("emptied")} == ends


async def test_a_replica_that_does_not_lead_deletes_nothing_and_the_leader_is_named(
    tiered: Command, three_brokers: "ThreeBrokers"
) -> None:
    await asyncio.to_thread(tiered, "topics", "create", "moved", "-p", "1", "-r", "2")
    await asyncio.to_thread(tiered.fill, "moved")
    async with Cluster(three_brokers.bootstrap) as cluster:
        topic = await existing_topic(cluster, "moved")
        (partition,) = topic.partitions
        follower_id = next(replica for replica in partition.replicas if replica != partition.leader_id)
        outdated = replace(topic, partitions=(replace(partition, leader_id=follower_id),))
        cuts = [Cut(partition=0, before=0, after=LINES)]
        codes = await execute_cuts(cluster, outdated, cuts)
        failures = await failures_of(argparse.Namespace(), cluster, outdated, cuts, codes)
        assert f"broker {partition.leader_id} does now; run the command again (NOT_LEADER_OR_FOLLOWER)" in failures[0]
        assert await cluster.list_offsets("moved", {0: EARLIEST}) == {0: 0}


def test_brokers_are_listed_with_what_they_carry(tiered: Command, three_brokers: "ThreeBrokers") -> None:
    tiered("topics", "create", "listed", "-p", "3", "--replication-factor", "3")
    found = tiered.json("brokers", "list")
    assert [each["broker"] for each in found] == [1, 2, 3]
    assert [each["rack"] for each in found] == ["rack-1", "rack-2", "rack-3"]
    assert all(each["in_service"] and each["leaders"] >= 1 and each["replicas"] >= 3 for each in found)
    assert sum(each["controller"] for each in found) == 1
    assert tiered("brokers", "list", "-q").split() == ["1", "2", "3"]
    shown = tiered("brokers", "list", "--http", three_brokers.broker(2).http).splitlines()
    assert shown[0].split()[:7] == ["BROKER", "ADDRESS", "RACK", "STATE", "VERSION", "LOCAL", "FREE"]
    assert len(shown) == 4, "nothing is unknown"
    brokers = tiered.json("brokers", "list", "--http", three_brokers.broker(2).http)
    assert [broker["version"] for broker in brokers] == [__version__] * 3
    assert all(0 < broker["disk_usable_bytes"] < broker["disk_total_bytes"] for broker in brokers)
    (other, *_) = tiered.json("brokers", "list", "--http", "127.0.0.1:1")
    assert other["version"] is None
    assert other["unknown"]["version"].startswith("cannot reach 127.0.0.1:1")


def test_a_broker_is_described_with_the_room_on_its_disk(tiered: Command) -> None:
    tiered("topics", "create", "described", "--replication-factor", "3")
    tiered.fill("described")
    (found,) = tiered.json("brokers", "describe", "2")
    assert found["disk_usable_bytes"] > 0
    (held,) = [each for each in found["partitions"] if each["topic"] == "described"]
    assert held["in_sync"]
    assert held["local_bytes"] > LINES
    assert "described" in tiered("brokers", "describe", "2")
    assert "there is no broker 9" in tiered("brokers", "describe", "9", code=1)


def test_draining_moves_every_replica_and_no_record_is_lost(tiered: Command, three_brokers: "ThreeBrokers") -> None:
    tiered("topics", "create", "drained", "-p", "6", "--replication-factor", "2")
    tiered.fill("drained")
    for each in tiered.json("topics", "list"):
        if each["replicas"] > 2:
            tiered("topics", "delete", each["topic"])
    plan = tiered.json("brokers", "drain", "3", "--plan")["moves"]
    assert plan
    assert all(3 in each["replicas"] and 3 not in each["target"] for each in plan)
    assert any(3 in each for each in tiered.replicas("drained")), "a plan moves nothing"
    done = tiered.json("brokers", "drain", "3", "--timeout", "60")
    assert done["complete"]
    assert done["moves"] == plan
    assert all(sorted(each) == [1, 2] for each in tiered.replicas("drained"))
    assert tiered.json("brokers", "list")[2]["replicas"] == 0
    assert tiered.values("drained") == list(range(LINES))
    assert "no replica left to move" in tiered("brokers", "drain", "3")
    assert "in service: stop it first" in tiered("brokers", "remove", "3", code=1)
    assert three_brokers.broker(3).stop() == 0
    shown = tiered("brokers", "list", "--http", three_brokers.broker(1).http)
    assert shown.endswith("\n\nversion and disk of broker 3 not known: it is out of service\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIERED_HTTP_URL", three_brokers.broker(1).http)
        lines = tiered.lines("doctor", "--only", "broker", code=1)
    dead = [line for line in lines if line.startswith("fail")]
    assert len(dead) == 1
    assert "broker 3 is registered, out of service, and does not answer" in dead[0]
    ready = [line for line in lines if line.startswith("ok") and "says that it serves" in line]
    assert [line.split()[2:4] for line in ready] == [["broker", "1"], ["broker", "2"]]
    assert tiered("brokers", "remove", "3") == "broker 3 removed\n"
    assert [each["broker"] for each in tiered.json("brokers", "list")] == [1, 2]
    assert "there is no broker 3" in tiered("brokers", "describe", "3", code=1)
    three_brokers.broker(3).start()
    eventually(lambda: len(tiered.json("brokers", "list")) == 3, lambda: tiered.json("brokers", "list"))
    assert "balanced" in tiered("brokers", "balance", "--timeout", "60")
    carried = [each["replicas"] for each in tiered.json("brokers", "list")]
    assert max(carried) - min(carried) <= 1
    assert tiered.values("drained") == list(range(LINES))


def test_a_drain_that_leaves_too_few_brokers_says_so(tiered: Command) -> None:
    tiered("topics", "create", "everywhere", "--replication-factor", "3")
    assert "everywhere has 3 replicas, and only 2 brokers" in tiered("brokers", "drain", "1", code=1)
    assert "no broker in service would be left" in tiered("brokers", "drain", "1", "2", "3", code=1)
    assert "there is no broker 7" in tiered("brokers", "drain", "7", code=1)
    tiered("topics", "delete", "everywhere")


def test_a_topic_gets_more_replicas_and_fewer(tiered: Command, three_brokers: "ThreeBrokers") -> None:
    tiered("topics", "create", "resized", "-p", "2", "--replication-factor", "1")
    tiered.fill("resized")
    tiered("topics", "reassign", "resized", "--to", "1,2,3", "--replication-factor", "3", "--timeout", "60")
    assert all(sorted(each) == [1, 2, 3] for each in tiered.replicas("resized"))
    assert all(sorted(each["in_sync_replicas"]) == [1, 2, 3] for each in tiered.partitions("resized"))

    def told() -> list[int]:
        return [each.get("/api/v1/topics/resized")["replication_factor"] for each in three_brokers.brokers]

    eventually(lambda: told() == [3, 3, 3], told)
    tiered("topics", "reassign", "resized:0", "--replicas", "3,1", "--timeout", "60")
    assert tiered.replicas("resized")[0] == [3, 1]
    assert len(tiered.replicas("resized")[1]) == 3
    assert tiered.values("resized") == list(range(LINES))
    assert "nothing to move" in tiered("topics", "reassign", "resized:0", "--replicas", "3,1")
    tiered("topics", "delete", "resized")


def test_a_plan_of_kafkas_own_tool_is_taken(tiered: Command, tmp_path: Path) -> None:
    tiered("topics", "create", "planned", "--replication-factor", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "planned", "partition": 0, "replicas": [2, 3]}]})
    )
    tiered("topics", "reassign", "--file", str(plan), "--timeout", "60")
    assert tiered.replicas("planned") == [[2, 3]]


def test_a_move_is_throttled_shown_and_cancelled(
    tiered: Command, three_brokers: "ThreeBrokers", tmp_path: Path
) -> None:
    lines = tmp_path / "long-lines"
    lines.write_text("".join(f"{number:01000}\n" for number in range(3_000)))
    tiered("topics", "create", "slow", "--replication-factor", "1", "-c", "remote.storage.enable=false")
    (before,) = tiered.replicas("slow")
    target = next(each for each in (1, 2, 3) if each not in before)
    tiered("produce", "slow", str(lines))
    tiered("topics", "reassign", "slow", "--replicas", str(target), "--throttle", "1000", "--no-wait")
    (moving,) = [each for each in tiered.json("topics", "reassignments") if each["topic"] == "slow"]
    assert (moving["adding_replicas"], moving["removing_replicas"]) == ([target], before)
    assert moving["copied_bytes"] < moving["leader_bytes"]
    assert "slow" in tiered("topics", "reassignments")
    (listed,) = tiered.json("topics", "list", "--under-replicated")
    assert (listed["topic"], listed["under_replicated"]) == ("slow", 1)
    assert tiered("topics", "list", "--under-replicated", "-q") == "slow\n"
    assert tiered("topics", "list", "--under-replicated").splitlines()[1].split()[-1] == "1"
    assert "slow" not in tiered("topics", "list", "--under-min-isr", "-q").split()
    tiered("topics", "alter", "slow", "-c", "min.insync.replicas=2")
    (listed,) = [topic for topic in tiered.json("topics", "list", "--under-min-isr") if topic["topic"] == "slow"]
    facts = three_brokers.broker(1).get("/api/v1/topics/slow")["partitions"]
    assert listed["under_min_isr"] == sum(partition["under_min_isr"] for partition in facts) == 1
    (row,) = [line for line in tiered("topics", "list", "--under-min-isr").splitlines() if line.startswith("slow ")]
    assert row.split()[-1] == "1"
    tiered("topics", "alter", "slow", "--delete-config", "min.insync.replicas")
    described = tiered("topics", "describe", "slow").splitlines()
    assert described[0].endswith(", 1 partition under-replicated")
    assert described[2].split()[4:6] == [str(before[0]), str(target)], "in sync, and not"
    assert "not complete after 1 s" in tiered(
        "topics", "reassign", "slow", "--replicas", str(target), "--timeout", "1", code=1
    )
    assert "1 partition cancelled" in tiered("topics", "reassign", "slow", "--cancel")
    assert tiered.replicas("slow") == [before]
    assert tiered("topics", "reassignments") == "nothing is being moved\n"
    assert tiered("topics", "reassign", "slow", "--cancel") == "nothing moves\n"
    tiered("topics", "reassign", "slow", "--replicas", str(target), "--throttle", "1000000000", "--timeout", "60")
    assert tiered.replicas("slow") == [[target]]
    assert len(tiered.values("slow")) == 3_000


def test_leaders_are_elected(tiered: Command) -> None:
    tiered("topics", "create", "elected", "--replication-factor", "3")
    (before,) = tiered.partitions("elected")
    others = [each for each in before["replicas"] if each != before["leader"]]
    order = ",".join(map(str, [*others, before["leader"]]))
    tiered("topics", "reassign", "elected", "--replicas", order)
    assert "1 partition elected" in tiered("topics", "elect", "elected")
    eventually(lambda: tiered.partitions("elected")[0]["leader"] == others[0], lambda: tiered.partitions("elected"))
    assert "every partition has that leader already" in tiered("topics", "elect", "elected")
    assert tiered.json("topics", "elect", "elected", "--unclean") == [
        {"topic": "elected", "partition": 0, "changed": False, "error": None}
    ]
    assert "lose them of" in tiered("topics", "elect", "--all", "--unclean", code=2)
    tiered("topics", "delete", "elected")


# The whole command


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts `tiered cluster up` on free ports; whatever still runs is asked to end afterwards."""
    begun: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tiered.cli", "cluster", "up", "--free-ports", *argv]
        with (tmp_path / "said").open("a") as said:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()


def ready_of(process: "subprocess.Popen[str]", count: int) -> dict[int, str]:
    assert process.stdout is not None
    found = {}
    for _ in range(count):
        line = process.stdout.readline()
        ready = re.fullmatch(r"ready broker=(\d+) kafka=(\S+) http=(\S+)\n", line)
        assert ready, line
        found[int(ready[1])] = ready[2]
    return found


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Where the user nobody can enter, which PostgreSQL runs as when tests run as root."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="tiered-up-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_cluster_comes_up_ends_and_comes_up_again(
    up: Callable[..., "subprocess.Popen[str]"],
    short_folder: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    first = up("--brokers", "2", "--data", str(short_folder / "c"))
    tiered = Command(",".join(ready_of(first, 2).values()), capsys, tmp_path)
    eventually(lambda: len(tiered.json("brokers", "list")) == 2, lambda: tiered.json("brokers", "list"))
    tiered("topics", "create", "kept", "--replication-factor", "2")
    tiered.fill("kept")
    first.send_signal(signal.SIGINT)
    assert first.wait(WAIT_S) == 0
    second = up("--brokers", "2", "--data", str(short_folder / "c"))
    tiered = Command(",".join(ready_of(second, 2).values()), capsys, tmp_path)
    eventually(lambda: len(tiered.json("brokers", "list")) == 2, lambda: tiered.json("brokers", "list"))
    assert tiered.values("kept") == list(range(LINES))
    third = up("--brokers", "2", "--data", str(short_folder / "c"))
    assert third.wait(WAIT_S) == 1
    assert "is another `tiered cluster up` running there?" in (tmp_path / "said").read_text()
    assert len(tiered.json("brokers", "list")) == 2, "the one that runs was left alone"
    # Whoever is killed is named, with the command that starts it again.
    (victim,) = [
        each for each in psutil.Process(second.pid).children() if f"{short_folder}/c/broker-2" in each.cmdline()
    ]
    victim.kill()
    said = tmp_path / "said"
    eventually(lambda: "broker 2 ended by signal 9; start it again with:" in said.read_text(), said.read_text)
    assert tiered.values("kept") == list(range(LINES))


def test_sqlite_is_refused_for_several_brokers(up: Callable[..., "subprocess.Popen[str]"], tmp_path: Path) -> None:
    process = up("--meta", "sqlite:///x.db", "--data", str(tmp_path / "c"))
    assert process.wait(WAIT_S) == 2
    assert "several brokers need postgresql://" in (tmp_path / "said").read_text()

"""Groups on the command line: what other clients' groups look like, moving them, and being a member beside them."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.command_lines import line_of, started
from tests.support.command_line import Tiered

__all__ = ["started"]

RUN_S = 60.0


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """A broker of its own, whose groups do not wait for more members."""
    data = tmp_path_factory.mktemp("groups") / "data"
    process = BrokerProcess(data, settings={"group.initial.rebalance.delay.ms": 0}).start()
    yield Tiered(process)
    process.ensure_stopped()


def consumer_of(tiered: Tiered, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": tiered.broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "client.id": "theirs", "log_level": 0, **settings,
        }
    )  # fmt: skip


def committed_by(tiered: Tiered, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Lets another client commit these offsets of a group that has no members afterwards."""
    consumer = consumer_of(tiered, group)
    consumer.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()], asynchronous=False
    )
    consumer.close()


def filled(tiered: Tiered, topic: str, *, partitions: int = 1, each: int = 100) -> str:
    tiered.out("topics", "create", topic, "-p", str(partitions))
    for number in range(partitions):
        lines = b"".join(b"%d:%d\n" % (number, index) for index in range(each))
        tiered.out("produce", topic, "-p", str(number), lines=lines)
    return topic


def offsets_of(tiered: Tiered, group: str) -> dict[int, int | None]:
    (described,) = tiered.json("groups", "describe", group)
    return {each["partition"]: each["committed_offset"] for each in described["offsets"]}


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + RUN_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


# Looking


def test_another_clients_group_is_listed_and_described_with_members_offsets_and_lag(tiered: Tiered) -> None:
    filled(tiered, "seen", partitions=2)
    consumer = consumer_of(tiered, "seeing")
    consumer.subscribe(["seen"])
    assert consumer.poll(RUN_S) is not None
    consumer.commit(offsets=[TopicPartition("seen", 0, 100), TopicPartition("seen", 1, 30)], asynchronous=False)
    seeing = {"group": "seeing", "kind": "classic", "state": "Stable", "protocol_type": "consumer", "lag": 70}
    assert seeing in tiered.json("groups", "list", "--state", "stable", "--kind", "classic")
    listed = [line.split() for line in tiered.out("groups", "list").decode().splitlines()]
    assert listed[0] == ["GROUP", "KIND", "STATE", "LAG", "PROTOCOL"]
    assert ["seeing", "classic", "Stable", "70", "consumer"] in listed
    assert "seeing" not in tiered.out("groups", "list", "--quiet", "--state", "empty").decode().split()
    (described,) = tiered.json("groups", "describe", "seeing")
    (member,) = described["members"]
    assert member["client_id"] == "theirs"
    assert member["assignment"] == {"seen": [0, 1]}
    assert (described["kind"], described["state"], described["lag"]) == ("classic", "Stable", 70)
    second = described["offsets"][1]
    assert (second["committed_offset"], second["high_watermark"], second["lag"]) == (30, 100, 70)
    assert [each["member_id"] for each in described["offsets"]] == [member["member_id"]] * 2
    shown = tiered.out("groups", "describe", "seeing").decode()
    assert "seeing  classic, Stable, 1 member, range" in shown
    assert "\n70 records behind, in 1 partition\n" in shown
    assert described["uncommitted"] == {}
    assert "seen:0-1" in shown
    consumer.close()
    eventually(lambda: "It has no members" in tiered.out("groups", "describe", "seeing").decode())


def test_partitions_in_which_a_group_has_committed_nothing_are_counted(tiered: Tiered) -> None:
    filled(tiered, "partly", partitions=4)
    committed_by(tiered, "some", "partly", {1: 40})
    (described,) = tiered.json("groups", "describe", "some")
    assert described["uncommitted"] == {"partly": [0, 2, 3]}
    shown = tiered.out("groups", "describe", "some").decode()
    assert "\n60 records behind, in 1 partition; nothing committed in 3 partitions (partly:0,2-3)\n" in shown


def test_a_group_of_the_newer_protocol_is_seen_and_moved_as_any_other(tiered: Tiered) -> None:
    filled(tiered, "newer", partitions=2)
    consumer = consumer_of(tiered, "newest", **{"group.protocol": "consumer"})
    consumer.subscribe(["newer"])
    message = consumer.poll(RUN_S)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    listed = tiered.json("groups", "list", "--kind", "consumer")
    assert [each["group"] for each in listed] == ["newest"]
    (described,) = tiered.json("groups", "describe", "newest")
    assert (described["kind"], described["lag"]) == ("consumer", 99)
    assert [each["assignment"] for each in described["members"]] == [{"newer": [0, 1]}]
    assert "has 1 member" in tiered.failure("groups", "reset", "newest", "--all-topics", "--to-latest", "--execute")
    consumer.close()
    tiered.out("groups", "reset", "newest", "--topic", "newer", "--to-latest", "--execute")
    assert offsets_of(tiered, "newest") == {0: 100, 1: 100}
    assert tiered.out("groups", "delete", "newest") == b"newest deleted\n"


def test_a_group_that_is_missing_is_said_with_names_that_are_like_it(tiered: Tiered) -> None:
    filled(tiered, "like")
    committed_by(tiered, "billing", "like", {0: 1})
    assert "there is no group biling (did you mean billing?)" in tiered.failure("groups", "describe", "biling")
    assert "there is no group biling (did you mean billing?)" in tiered.failure("groups", "delete", "biling")
    for action in (["describe"], ["delete"], ["alter", "-p", "9"]):
        assert "there is no topic lik (did you mean like?)" in tiered.failure("topics", *action, "lik")


# Moving


@pytest.mark.parametrize(
    ("argv", "after"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 100),
        (["--to-offset", "7"], 7),
        (["--by", "-10"], 40),
        (["--to-timestamp", "0"], 0),
        (["--to-datetime", "2999-01-01T00:00:00"], 100),
    ],
)
def test_a_reset_shows_its_plan_and_moves_only_when_told(
    tiered: Tiered, argv: list[str], after: int, request: pytest.FixtureRequest
) -> None:
    if "moved" not in tiered.out("topics", "list", "-q").decode().split():
        filled(tiered, "moved")
    group = f"moved-{request.node.callspec.id}"
    committed_by(tiered, group, "moved", {0: 50})
    planned = {"topic": "moved", "partition": 0, "before": 50, "after": after, "asked": None, "error": None}
    expected = {"group": group, "executed": False, "offsets": [planned]}
    assert tiered.json("groups", "reset", group, "--all-topics", *argv) == expected
    assert "this is the plan" in tiered.out("groups", "reset", group, "--topic", "moved:0", *argv).decode()
    assert offsets_of(tiered, group) == {0: 50}
    tiered.out("groups", "reset", group, "--topic", "moved", *argv, "--execute")
    assert offsets_of(tiered, group) == {0: after}


@pytest.mark.parametrize(("argv", "asked"), [(["--to-offset", "700"], 700), (["--by", "1000"], 1050)])
def test_a_reset_to_outside_the_log_goes_to_the_nearest_offset_and_says_so(
    tiered: Tiered, argv: list[str], asked: int
) -> None:
    if "moved" not in tiered.out("topics", "list", "-q").decode().split():
        filled(tiered, "moved")
    committed_by(tiered, f"beyond-{asked}", "moved", {0: 50})
    done = tiered.run("groups", "reset", f"beyond-{asked}", "--all-topics", "--json", "--execute", *argv)
    planned = {"topic": "moved", "partition": 0, "before": 50, "after": 100, "asked": asked, "error": None}
    assert json.loads(done.stdout)["offsets"] == [planned]
    said = f"tiered groups reset: moved-0: offset {asked} is outside the log; 100 is the nearest\n"
    assert done.stderr.decode() == said
    assert offsets_of(tiered, f"beyond-{asked}") == {0: 100}


def test_a_group_that_does_not_exist_yet_is_made_by_a_reset(tiered: Tiered) -> None:
    filled(tiered, "early")
    said = tiered.out("groups", "reset", "unborn", "--topic", "early", "--to-offset", "90", "--execute")
    assert b"This makes a new group: there is no group unborn" in said
    assert tiered.out("consume", "early", "-g", "unborn") == b"".join(b"0:%d\n" % each for each in range(90, 100))
    assert "there is no group absent" in tiered.failure("groups", "reset", "absent", "--all-topics", "--to-latest")


def test_a_reset_asks_whether_another_group_was_meant(tiered: Tiered) -> None:
    filled(tiered, "meant")
    committed_by(tiered, "shipping", "meant", {0: 1})
    asked = "there is no group shiping (did you mean shipping"
    assert asked in tiered.out("groups", "reset", "shiping", "--topic", "meant", "--to-latest").decode()
    assert asked in tiered.failure("groups", "reset", "shiping", "--all-topics", "--to-latest")
    assert "new group" not in tiered.out("groups", "reset", "shipping", "--all-topics", "--to-latest").decode()


def test_offsets_are_forgotten_partition_by_partition(tiered: Tiered) -> None:
    filled(tiered, "forgotten", partitions=3, each=1)
    committed_by(tiered, "forgetting", "forgotten", {0: 1, 1: 1, 2: 1})
    tiered.out("groups", "reset", "forgetting", "--topic", "forgotten:0,2", "--delete", "--execute")
    assert offsets_of(tiered, "forgetting") == {1: 1}


def test_what_cannot_be_moved_is_refused_and_nothing_is_moved(tiered: Tiered) -> None:
    filled(tiered, "held", partitions=2)
    committed_by(tiered, "holding", "held", {0: 50})
    said = tiered.failure("groups", "reset", "holding", "--topic", "held", "--by", "5", "--execute")
    assert "has no offset of held-1 that --by could count from" in said
    said = tiered.failure("groups", "reset", "holding", "--topic", "held:7", "--to-latest", "--execute", code=2)
    assert "held has no partition 7" in said
    consumer = consumer_of(tiered, "holding")
    consumer.subscribe(["held"])
    assert consumer.poll(RUN_S) is not None
    said = tiered.failure("groups", "reset", "holding", "--all-topics", "--to-latest", "--execute")
    assert "group holding has 1 member" in said
    assert "NON_EMPTY_GROUP" in tiered.failure("groups", "delete", "holding")
    consumer.close()
    assert offsets_of(tiered, "holding") == {0: 50}


def test_each_of_several_groups_is_deleted_and_any_failure_shows_in_the_exit_code(tiered: Tiered) -> None:
    filled(tiered, "gone", each=1)
    for group in ("gone-1", "gone-2", "gone-3"):
        committed_by(tiered, group, "gone", {0: 1})
    assert tiered.out("groups", "delete", "gone-1", "gone-2") == b"gone-1 deleted\ngone-2 deleted\n"
    done = tiered.run("groups", "delete", "gone-1", "gone-3", "--json", code=1)
    assert [(each["group"], each["changed"]) for each in json.loads(done.stdout)] == [
        ("gone-1", False), ("gone-3", True),
    ]  # fmt: skip
    assert b"GROUP_ID_NOT_FOUND" in done.stderr
    assert tiered.out("groups", "delete", "gone-1", "--if-exists") == b"gone-1 needs no change\n"
    assert not {"gone-1", "gone-2", "gone-3"} & set(tiered.out("groups", "list", "-q").decode().split())


# Being a member


def test_a_group_goes_on_where_it_was_whichever_client_was_there_before(tiered: Tiered) -> None:
    filled(tiered, "resumed")
    assert tiered.out("consume", "resumed", "-g", "resuming", "-c", "3") == b"0:0\n0:1\n0:2\n"
    assert tiered.out("consume", "resumed", "-g", "resuming", "-c", "1") == b"0:3\n"
    consumer = consumer_of(tiered, "resuming")
    consumer.subscribe(["resumed"])
    message = consumer.poll(RUN_S)
    assert message is not None
    assert message.value() == b"0:4"
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    assert tiered.out("consume", "resumed", "-g", "resuming", "-c", "1") == b"0:5\n"
    assert tiered.out("consume", "resumed", "-g", "resuming").count(b"\n") == 94
    assert tiered.out("consume", "resumed", "-g", "resuming") == b""


def test_where_it_has_committed_nothing_a_group_begins_at_the_offset_that_it_is_told(tiered: Tiered) -> None:
    filled(tiered, "begun")
    assert tiered.out("consume", "begun", "-g", "beginning", "-o", "-2") == b"0:98\n0:99\n"
    assert tiered.out("consume", "begun", "-g", "ending", "-o", "end", "-e") == b""


def test_members_share_the_partitions_and_the_end_of_one_gives_its_to_the_other(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    tiered.out("topics", "create", "shared", "-p", "2")
    first, second = (tiered.start("consume", "shared", "-g", "sharing", "-f", "-k", ":") for _ in range(2))
    started += [first, second]

    def assigned() -> list[list[int]]:
        listed = tiered.run("groups", "list", "-q").stdout.decode().split()
        if "sharing" not in listed:
            return []
        (described,) = tiered.json("groups", "describe", "sharing")
        return sorted(each["assignment"].get("shared", []) for each in described["members"])

    eventually(lambda: assigned() == [[0], [1]])
    for number in range(2):
        tiered.out("produce", "shared", "-p", str(number), lines=b"to %d\n" % number)
    assert {line_of(first.stdout), line_of(second.stdout)} == {b":to 0\n", b":to 1\n"}
    # `kill` is a regular end as Ctrl-C is: it commits and leaves at once, long before its session would end.
    first.send_signal(signal.SIGTERM)
    assert first.wait(RUN_S) == 0
    eventually(lambda: assigned() == [[0, 1]])
    tiered.out("produce", "shared", "-p", "0", lines=b"later\n")
    tiered.out("produce", "shared", "-p", "1", lines=b"later\n")
    assert [line_of(second.stdout), line_of(second.stdout)] == [b":later\n", b":later\n"]
    second.send_signal(signal.SIGINT)
    assert second.wait(RUN_S) == 0
    assert second.stderr is not None
    assert second.stderr.read() == b""
    assert offsets_of(tiered, "sharing") == {0: 2, 1: 2}


def test_a_member_in_a_scripts_background_ends_by_kill_although_it_ignores_ctrl_c(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    filled(tiered, "behind", each=3)
    # A shell without job control starts `command &` with SIGINT ignored.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        member = tiered.start("consume", "behind", "-g", "background", "-f")
    finally:
        signal.signal(signal.SIGINT, previous)
    started.append(member)
    assert [line_of(member.stdout) for _ in range(3)] == [b"0:0\n", b"0:1\n", b"0:2\n"]
    member.send_signal(signal.SIGINT)
    member.send_signal(signal.SIGTERM)
    assert member.wait(RUN_S) == 0
    assert member.stderr is not None
    assert member.stderr.read() == b""
    assert offsets_of(tiered, "background") == {0: 3}


def test_beside_another_client_each_record_is_read_by_one_of_them(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    filled(tiered, "mixed", partitions=4, each=0)
    theirs = consumer_of(tiered, "mixing", **{"enable.auto.commit": True})
    theirs.subscribe(["mixed"])
    ours = tiered.start("consume", "mixed", "-g", "mixing", "-f")
    started.append(ours)
    eventually(lambda: theirs.poll(0.1) is None and len(theirs.assignment()) == 2)
    for number in range(4):
        tiered.out("produce", "mixed", "-p", str(number), lines=b"%d\n" % number)
    found = [int(line_of(ours.stdout)) for _ in range(2)]
    found += [int(eventually(lambda: theirs.poll(0.5)).value()) for _ in range(2)]
    assert sorted(found) == [0, 1, 2, 3]
    theirs.close()


def test_an_offset_that_retention_has_deleted_is_said_and_gone_on_from(tiered: Tiered) -> None:
    filled(tiered, "expired")
    committed_by(tiered, "late", "expired", {0: 200})
    done = tiered.run("consume", "expired", "-g", "late", "-o", "-1")
    assert done.stdout == b"0:99\n"
    assert b"the group is at offset 200, and the log has 0 to 100" in done.stderr


# Records as JSON and in words of one's own


def test_what_is_shown_as_json_is_produced_again_as_it_was(tiered: Tiered) -> None:
    argv = ("-p", "0", "-k", ":", "-H", "h=1", "-H", "n=NULL", "--null", "NULL")
    tiered.out("produce", "first", *argv, lines=b"k:v\nNULL:\xff\n\x00:NULL\n")
    shown = tiered.out("consume", "first", "--json")
    tiered.out("produce", "copy", "-p", "0", "--format", "json", lines=shown)
    assert tiered.out("consume", "copy", "--json").replace(b"copy", b"first") == shown
    said = tiered.failure("produce", "copy", "--format", "json", lines=b'{"value": "x"}\nno json\n')
    assert "line 2 is no record in JSON" in said


def test_a_template_shows_where_records_are(tiered: Tiered) -> None:
    filled(tiered, "worded", each=2)
    assert tiered.out("consume", "worded", "--template", r"%t-%p %o %s\n") == b"worded-0 0 0:0\nworded-0 1 0:1\n"


# The wrong address


def test_the_wrong_one_of_the_two_ports_is_recognised(tiered: Tiered) -> None:
    http = tiered.broker.http.removeprefix("http://")
    assert f"{http} is no Kafka address: HTTP is spoken at it" in tiered.failure("topics", "list", "-b", http)
    assert "is that the Kafka port?" in tiered.failure("segments", "x", "--http", tiered.broker.bootstrap)


def test_configs_of_a_group_are_shown_set_and_deleted(tiered: Tiered) -> None:
    def told(*arguments: str) -> dict[str, tuple[str, str]]:
        found = tiered.json("groups", "config", "configured", *arguments)["configs"]
        return {each["name"]: (each["value"], each["source"]) for each in found}

    name = "consumer.session.timeout.ms"
    assert told()[name] == ("45000", "default")
    assert next(iter(told("--config", f"{name}=50s").items())) == (name, ("50000", "group"))
    assert name.encode() in tiered.out("groups", "config", "configured").splitlines()[1]
    assert told("--delete-config", name)[name] == ("45000", "default")

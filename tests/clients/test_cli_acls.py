"""`tiered acls` against a broker: what it adds it lists and removes, and what cannot be meant it says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.command_line import Tiered
from tiered.cli import main
from tiered.meta.security import AclRow


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    settings = ("--set", "tiered.authorizer=acl", "--set", "super.users=User:ANONYMOUS")
    process = BrokerProcess(tmp_path_factory.mktemp("acls") / "data", *settings).start()
    yield Tiered(process)
    process.ensure_stopped()


def rules(tiered: Tiered, *options: str) -> set[tuple[str, ...]]:
    found = tiered.json("acls", "list", *options)
    words = ("resource_type", "resource_name", "pattern_type", "principal", "operation", "permission")
    return {tuple(each[word] for word in words) for each in found}


def test_what_is_added_is_listed_and_removed(tiered: Tiered) -> None:
    tiered.out("acls", "add", "--principal", "User:ann", "--producer", "--topic", "orders", "--transactional-id", "tx")
    tiered.out("acls", "add", "--principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g", "--prefixed")
    tiered.out(
        "acls", "add", "--principal", "User:*", "--deny", "--operation", "delete", "--topic", "*", "--host", "::1"
    )
    tiered.out("acls", "add", "--principal", "User:ann", "--operation", "alter-configs", "--cluster")
    assert rules(tiered, "--principal", "User:ann") == {
        ("TOPIC", "orders", "LITERAL", "User:ann", "WRITE", "ALLOW"),
        ("TOPIC", "orders", "LITERAL", "User:ann", "DESCRIBE", "ALLOW"),
        ("TOPIC", "orders", "LITERAL", "User:ann", "CREATE", "ALLOW"),
        ("TRANSACTIONAL_ID", "tx", "LITERAL", "User:ann", "WRITE", "ALLOW"),
        ("TRANSACTIONAL_ID", "tx", "LITERAL", "User:ann", "DESCRIBE", "ALLOW"),
        ("CLUSTER", "kafka-cluster", "LITERAL", "User:ann", "ALTER_CONFIGS", "ALLOW"),
    }
    assert rules(tiered, "--topic", "orders", "--match", "--operation", "read") == {
        ("TOPIC", "ord", "PREFIXED", "User:bob", "READ", "ALLOW")
    }
    assert rules(tiered, "--deny") == {("TOPIC", "*", "LITERAL", "User:*", "DELETE", "DENY")}
    lines = tiered.out("acls", "list", "--deny").decode().splitlines()
    assert [line.split() for line in lines] == [
        ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
        ["TOPIC", "*", "LITERAL", "User:*", "::1", "DELETE", "DENY"],
    ]
    before = rules(tiered)
    tiered.out("acls", "remove", "--principal", "User:bob", "--dry-run")
    assert rules(tiered) == before
    gone = tiered.json("acls", "remove", "--principal", "User:bob")
    assert len(gone) == 3
    assert rules(tiered, "--principal", "User:bob") == set()
    tiered.out("acls", "remove", "--all")
    assert tiered.out("acls", "list") == b"no rules; `tiered acls add` makes one\n"


def test_what_cannot_be_meant_is_said_and_nothing_is_done(tiered: Tiered) -> None:
    someone = ("acls", "add", "--principal", "User:x")
    assert "say on what" in tiered.failure(*someone, "--operation", "read", code=2)
    assert "say what" in tiered.failure(*someone, "--topic", "t", code=2)
    assert "needs a --topic and a --group" in tiered.failure(*someone, "--consumer", "--topic", "t", code=2)
    assert "--all" in tiered.failure("acls", "remove", code=2)
    assert "KIND:NAME" in tiered.failure("acls", "add", "--principal", "x", "--topic", "t", "--operation", "read")
    assert rules(tiered) == set()


def test_a_rule_whose_host_is_no_address_is_warned_of_when_it_is_made_shown_and_removed(tiered: Tiered) -> None:
    made = ("acls", "add", "--principal", "User:x", "--operation", "read", "--topic", "t", "--deny")
    for command in ((*made, "--host", "a.name", "--host", "::1"), ("acls", "list"), ("acls", "remove", "--all")):
        done = tiered.run(*command)
        assert done.stderr == b"warning: host a.name is no IP address: such a rule is kept, and meets nobody\n"
        assert b"a.name" in done.stdout


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """Commands of User:ANONYMOUS, who may do nothing there."""
    settings = ("--set", "tiered.authorizer=acl", "--set", "super.users=User:root")
    process = BrokerProcess(tmp_path_factory.mktemp("nobody") / "data", *settings)
    yield Tiered(process.start())
    process.ensure_stopped()


def test_who_may_see_no_topic_is_told_no_counts_of_replicas(nobody: Tiered) -> None:
    """A 0 in NOT-IN-SYNC would tell an operator with the wrong certificate to go on."""
    done = nobody.run("brokers", "list")
    assert done.stdout.decode().splitlines()[1].split()[-3:] == ["-", "-", "-"]
    assert "you may see no topic" in done.stderr.decode()
    (told,) = json.loads(nobody.run("brokers", "list", "--json").stdout)
    assert (told["broker"], told["leaders"], told["not_in_sync"]) == (1, None, None)


@pytest.mark.parametrize(
    ("argv", "right", "resource"),
    [
        (["topics", "create", "orders"], "CREATE", "topic orders"),
        (["topics", "describe", "orders"], "DESCRIBE", "topic orders"),
        (["topics", "delete-records", "orders", "--before", "end"], "DESCRIBE", "topic orders"),
        (["produce", "orders"], "WRITE", "topic orders"),
        (["consume", "orders"], "DESCRIBE", "topic orders"),
        (["groups", "describe", "etl"], "DESCRIBE", "group etl"),
        (["groups", "delete", "etl"], "DELETE", "group etl"),
        (["transactions", "describe", "etl"], "DESCRIBE", "transactional id etl"),
        (["transactions", "abort", "etl"], "DESCRIBE", "transactional id etl"),
        (["acls", "list"], "DESCRIBE", "the cluster"),
        (["snapshot", "create", "s", "orders"], "ALTER", "topic orders"),
    ],
)
def test_a_refusal_says_who_lacks_which_right_and_what_gives_it(
    nobody: Tiered, argv: list[str], right: str, resource: str
) -> None:
    said = nobody.failure(*argv, lines=b"a\n")
    assert f"User:ANONYMOUS lacks the right {right} on {resource}; " in said
    option = (
        "--cluster" if resource == "the cluster" else f"--{resource.replace('transactional id', 'transactional-id')}"
    )
    assert f"`tiered acls add --principal User:ANONYMOUS --operation {right.lower()} {option}` gives it" in said


SEES_TOPIC = [allow(operation, "TOPIC", "seen") for operation in ("CREATE", "DESCRIBE", "WRITE")]
SEES_GROUPS = [allow("DESCRIBE", "GROUP", "*")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data") as broker:
        broker.rules(SEES_TOPIC)
        assert main(["topics", "create", "seen", "-p", "1", "-b", f"127.0.0.1:{broker.kafka_port}"]) == 0
        yield broker


@pytest.mark.parametrize(
    ("argv", "rules", "right", "resource"),
    [
        (["consume", "seen"], [], "READ", "topic seen"),
        (["consume", "^s"], [], "READ", "topic seen"),
        (["consume", "seen", "-g", "etl"], SEES_GROUPS, "READ", "group etl"),
        (["transactions", "find-hanging"], [], "READ", "topic seen"),
        (["transactions", "find-hanging", "--topic", "seen"], [], "READ", "topic seen"),
        (
            ["transactions", "abort", "--topic", "seen", "--partition", "0", "--start-offset", "0"],
            [], "READ", "topic seen",
        ),
        (["groups", "reset", "etl", "--topic", "seen", "--to-latest", "--execute"], SEES_GROUPS, "READ", "group etl"),
        (
            ["groups", "reset", "etl", "--topic", "seen", "--to-latest", "--execute"],
            [*SEES_GROUPS, allow("READ", "GROUP", "etl")], "READ", "topic seen",
        ),
        (["topics", "delete-records", "seen", "--before", "end", "--execute"], [], "DELETE", "topic seen"),
    ],
)  # fmt: skip
def test_who_sees_a_topic_and_may_not_use_it_is_told_what_gives_the_right(
    guarded: GuardedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    argv: list[str], rules: list[AclRow], right: str, resource: str,
) -> None:  # fmt: skip
    bootstrap = f"127.0.0.1:{guarded.kafka_port}"
    guarded.rules([*SEES_TOPIC, *rules])
    (tmp_path / "lines").write_text("a\n")
    assert main(["produce", "seen", str(tmp_path / "lines"), "-b", bootstrap]) == 0
    assert main([*argv, "-b", bootstrap]) == 1
    refusal = capsys.readouterr().err
    assert f"User:ANONYMOUS lacks the right {right} on {resource}; " in refusal
    command = f"tiered acls add --principal User:ANONYMOUS --operation {right.lower()} --{resource}"
    assert f"`{command}` gives it" in refusal


def test_what_the_protocol_has_no_words_for_is_said_with_who_one_is(nobody: Tiered) -> None:
    said = nobody.failure("topics", "elect", "--all")
    assert said.endswith("CLUSTER_AUTHORIZATION_FAILED (31); the broker takes you for User:ANONYMOUS\n")


def test_an_empty_table_says_who_may_see_nothing(nobody: Tiered) -> None:
    assert nobody.out("topics", "list") == b"no topic that User:ANONYMOUS may see\n"
    assert nobody.out("groups", "list") == b"no group that User:ANONYMOUS may see\n"
    assert nobody.out("transactions", "list") == b"no transactional id that User:ANONYMOUS may see\n"
    assert nobody.out("topics", "list", "-q") == b""
    assert nobody.json("topics", "list") == []


def test_an_empty_broker_without_rules_says_what_makes_a_topic_and_a_group(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    open_to_all = Tiered(make_broker().start())
    assert open_to_all.out("topics", "list") == b"no topic; `tiered topics create NAME` makes one\n"
    assert open_to_all.out("groups", "list").startswith(b"no group; a group is there once it has a member")

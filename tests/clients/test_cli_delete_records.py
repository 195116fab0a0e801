"""`tiered topics delete-records`: what goes is shown first, and only `--execute` takes it away."""

import json

import pytest

from tests.clients.command_lines import tiered
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.command_line import Tiered

__all__ = ["tiered"]

TIMES = b"".join(b'{"value": "%d", "timestamp_ms": %d}\n' % (number, 1000 + number) for number in range(10))


@pytest.fixture(scope="module")
def dated(tiered: Tiered) -> str:
    """A topic of two partitions; ten records, one a millisecond from 1000 on, in the first, and none in the other."""
    tiered.out("topics", "create", "dated", "-p", "2")
    tiered.out("produce", "dated", "-p", "0", "--format", "json", lines=TIMES)
    return "dated"


@pytest.mark.parametrize(
    ("argv", "before_and_after"),
    [
        (["dated:0", "--before", "4"], [(0, 4)]),
        (["dated", "--before", "@1007"], [(0, 7), (0, 0)]),
        (["dated", "--before", "@1970-01-01T00:00:01.002Z"], [(0, 2), (0, 0)]),
        (["dated", "--before", "@999"], [(0, 0), (0, 0)]),
        (["dated", "--before", "@2000"], [(0, 10), (0, 0)]),
        (["dated", "--before", "end"], [(0, 10), (0, 0)]),
    ],
)
def test_the_plan_says_what_would_go_and_deletes_nothing(
    tiered: Tiered, dated: str, argv: list[str], before_and_after: list[tuple[int, int]]
) -> None:
    plan = tiered.json("topics", "delete-records", *argv)
    assert plan["executed"] is False
    assert [(each["before"], each["after"]) for each in plan["partitions"]] == before_and_after
    (described,) = tiered.json("topics", "describe", dated)
    assert [each["log_start_offset"] for each in described["partitions"]] == [0, 0]


def test_what_was_planned_goes_and_what_is_gone_is_not_asked_for_again(tiered: Tiered) -> None:
    tiered.out("topics", "create", "going", "-p", "1")
    tiered.out("produce", "going", lines=b"a\nb\nc\n")
    plan = tiered.out("topics", "delete-records", "going", "--before", "2").decode()
    assert plan.splitlines()[1].split() == ["0", "0", "2", "2"]
    assert "this is the plan. --execute deletes 2 offsets of going, for good." in plan
    done = tiered.out("topics", "delete-records", "going", "--before", "2", "--execute").decode()
    assert done.endswith("\n2 offsets of going deleted\n")
    assert tiered.out("consume", "going") == b"c\n"
    again = tiered.out("topics", "delete-records", "going", "--before", "1").decode()
    assert "Nothing to delete" in again


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["dated", "--before", "11"], 1, "dated-0 ends at offset 10: 11 is beyond; nothing was deleted"),
        (["dated:7", "--before", "1"], 2, "dated has no partition 7"),
        (["dated:x", "--before", "1"], 2, "'dated:x' is not allowed: it must be TOPIC, or TOPIC:0,1"),
        (["date", "--before", "1"], 1, "there is no topic date (did you mean dated?)"),
        (["dated", "--before", "beginning"], 2, "--before beginning is not allowed"),
        (["dated", "--before", "@soon"], 2, "--before @soon is not allowed"),
        (["dated", "--before", "9223372036854775808"], 2, "is not allowed"),
    ],
)
def test_what_cannot_go_is_said_and_nothing_does(
    tiered: Tiered, dated: str, argv: list[str], code: int, said: str
) -> None:
    assert said in tiered.failure("topics", "delete-records", *argv, "--execute", code=code)


def test_records_that_a_snapshot_holds_stay_and_it_is_named(tiered: Tiered) -> None:
    tiered.out("topics", "create", "held", "-p", "1")
    tiered.out("produce", "held", lines=b"a\n")
    tiered.out("snapshot", "create", "holder", "held")
    done = tiered.run("topics", "delete-records", "held", "--before", "end", "--execute", "--json", code=1)
    assert (
        b"snapshot holder holds records before offset 1; `tiered snapshot delete holder` frees them, if nobody needs "
        b"it (POLICY_VIOLATION)"
    ) in done.stderr
    (partition,) = json.loads(done.stdout)["partitions"]
    assert "POLICY_VIOLATION" in partition["error"]
    assert tiered.out("consume", "held") == b"a\n"
    unnamed = ("topics", "delete-records", "held", "--before", "end", "--execute", "--http", "127.0.0.1:1")
    assert "`tiered snapshot list held` shows them (POLICY_VIOLATION)" in tiered.failure(*unnamed)


def test_records_without_a_time_are_not_older_than_one(tiered: Tiered) -> None:
    tiered.out("topics", "create", "undated", "-p", "1")
    with RawConnection(tiered.broker) as connection:
        assert connection.produce("undated", batch([b"a"], first_ms=-1)).error_code == 0
    tiered.out("topics", "delete-records", "undated", "--before", "@2000000000000", "--execute")
    assert tiered.out("consume", "undated") == b"a\n"

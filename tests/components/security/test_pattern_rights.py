"""Subscriptions by a pattern, as somebody uses them who may not see every topic: nothing is learnt of the others."""

from collections.abc import Iterator

import pytest

from tests.clients.raw import RawConnection
from tests.components.guarded_broker import GuardedBroker, allow
from tests.components.new_members import DESCRIBE, NewMember, settle
from tiered.meta.security import AclRow
from tiered.wire import messages

TOPIC_AUTHORIZATION_FAILED = 29
READS_GROUP = allow("READ", "GROUP", "*")
SEES_OWN = allow("DESCRIBE", "TOPIC", "own", pattern_type="PREFIXED")
EVERYTHING = [allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data") as broker:
        yield broker


def create(guarded: GuardedBroker, *names: str) -> None:
    """The topics are there, and nobody has any right."""
    guarded.rules(EVERYTHING)
    request = messages.request(19, 7)
    wanted = [
        request.CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    with RawConnection(guarded) as connection:
        answer = connection.ask(19, 7, request.CreateTopicsRequest(topics=wanted, timeout=5000, validate_only=False))
    assert {int(each.error_code) for each in answer.topics} == {0}
    guarded.rules([])


def named(guarded: GuardedBroker, member: NewMember) -> set[str]:
    """The topics of which the member was given partitions."""
    topics = guarded.broker.topics
    return {guarded.run(lambda each=each: topics.by_id(each).name) for each in member.assigned}  # type: ignore[misc]


def test_a_pattern_gives_what_its_subscriber_may_describe_now_and_later(guarded: GuardedBroker) -> None:
    create(guarded, "own-1", "hidden-1")
    rules: list[AclRow] = [READS_GROUP, SEES_OWN]
    guarded.rules(rules)
    with NewMember(guarded, "by-pattern", topics=[], pattern=".*") as member:
        assert member.join().error_code == 0
        assert named(guarded, member) == {"own-1"}
        create(guarded, "own-2", "hidden-2")
        guarded.rules(rules)
        settle(member)
        assert named(guarded, member) == {"own-1", "own-2"}
        guarded.rules([*rules, allow("READ", "TOPIC", "hidden-2")])
        settle(member)
        assert named(guarded, member) == {"own-1", "own-2", "hidden-2"}
        guarded.rules(rules)
        settle(member)
        assert named(guarded, member) == {"own-1", "own-2"}


def test_nobody_learns_of_a_topic_by_asking_for_patterns(guarded: GuardedBroker) -> None:
    create(guarded, "guessed")
    guarded.rules([READS_GROUP])
    answers = set()
    for number, pattern in enumerate(("guesse.", "guess.*", "absent")):
        with NewMember(guarded, f"guesses-{number}", topics=[], pattern=pattern) as member:
            answer = member.join()
            answers.add((int(answer.error_code), answer.member_epoch, len(answer.assignment.topic_partitions)))
    assert answers == {(0, 1, 0)}


def test_a_description_that_is_refused_names_no_topic(guarded: GuardedBroker) -> None:
    create(guarded, "read-by-others")
    guarded.rules(EVERYTHING)
    with NewMember(guarded, "shared", topics=["read-by-others"]) as member:
        assert member.join().error_code == 0
        guarded.rules([allow("DESCRIBE", "GROUP", "*")])
        asked = messages.request(DESCRIBE, 0).ConsumerGroupDescribeRequest(
            group_ids=["shared"], include_authorized_operations=False
        )
        with RawConnection(guarded) as connection:
            (group,) = connection.ask(DESCRIBE, 0, asked).groups
    assert (int(group.error_code), list(group.members)) == (TOPIC_AUTHORIZATION_FAILED, [])
    assert "read-by-others" not in str(group)

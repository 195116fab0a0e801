"""Every API, with its rights and without: the right code, nothing done, nothing told."""

from collections.abc import Iterator

import pytest

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.guarded_broker import GuardedBroker, allow
from tests.components.rights_table import ABSENT, KNOWN, ROWS, Right, Row
from tests.components.security.rights_of_apis import ASKED, CHANGING, NEEDED
from tiered.broker.security.access import MAX_DECISIONS
from tiered.meta.security import AclRow
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.principal import Principal
from tiered.wire import fetch, messages
from tiered.wire.error_codes import AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data") as broker:
        yield broker


@pytest.fixture(autouse=True)
def known(guarded: GuardedBroker) -> None:
    """A topic and a group of this name are there, whatever a test before has done; then nobody has any right."""
    guarded.rules([allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER")])
    rows = {row.key: row for row in ROWS}
    with RawConnection(guarded) as connection:
        for key in (19, 8):
            connection.call(key, rows[key].version, rows[key].body(KNOWN))
        deleted = messages.request(20, 5).DeleteTopicsRequest(topic_names=[ABSENT], timeout=5000)
        connection.ask(20, 5, deleted)
    guarded.rules([])


def _rules(rights: tuple[Right, ...], name: str) -> list[AclRow]:
    return [allow(operation, kind, "kafka-cluster" if kind == "CLUSTER" else name) for operation, kind in rights]


def _state(guarded: GuardedBroker) -> object:
    broker = guarded.broker
    return guarded.run(
        lambda: (
            sorted((topic.name, topic.partition_count, tuple(topic.overrides.items())) for topic in broker.topics),
            sorted((each.name, each.log.log_end_offset, each.log_start_offset) for each in broker.topics.partitions()),
            dict(broker.settings.dynamic),
            sorted(broker.image.brokers),
        )
    )


def _codes(guarded: GuardedBroker, row: Row, name: str) -> list[int]:
    with RawConnection(guarded) as connection:
        return row.codes(connection.call(row.key, row.version, row.body(name)))


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_without_its_rights_a_request_gets_its_code_and_does_nothing(guarded: GuardedBroker, row: Row) -> None:
    before = _state(guarded)
    codes = _codes(guarded, row, KNOWN)
    assert row.denied in codes
    assert set(codes) <= {0, row.denied}
    for lacking in row.rights if len(row.rights) > 1 else ():
        guarded.rules(_rules(tuple(each for each in row.rights if each != lacking), KNOWN))
        assert AUTHORIZATION_FAILED & set(_codes(guarded, row, KNOWN)), f"goes through without {lacking}"
    assert _state(guarded) == before


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_without_its_rights_nobody_learns_whether_the_resource_is_there(guarded: GuardedBroker, row: Row) -> None:
    with RawConnection(guarded) as connection:
        known = connection.call(row.key, row.version, row.body(KNOWN))
        absent = connection.call(row.key, row.version, row.body(ABSENT))
    assert known.replace(KNOWN.encode(), ABSENT.encode()) == absent


@pytest.mark.parametrize("row", ASKED, ids=str)
def test_with_exactly_its_rights_a_request_is_not_refused_for_them(guarded: GuardedBroker, row: Row) -> None:
    name = ABSENT if row.key == 19 else KNOWN
    guarded.rules(_rules(row.rights, name))
    before = _state(guarded)
    assert not AUTHORIZATION_FAILED & set(_codes(guarded, row, name))
    if row.key not in CHANGING:
        assert _state(guarded) == before, "it changes something: let its row in server/kafka/api say `audit`"


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_a_deny_wins_over_every_right(guarded: GuardedBroker, row: Row) -> None:
    kinds = {kind for _, kind in row.rights}
    denied = [allow("ALL", kind, "*", permission="DENY") for kind in kinds]
    guarded.rules([*_rules(row.rights, KNOWN), *(allow("ALL", kind, "*") for kind in kinds), *denied])
    assert AUTHORIZATION_FAILED & set(_codes(guarded, row, KNOWN))


def test_part_of_a_request_may_be_refused_and_the_rest_is_done(guarded: GuardedBroker) -> None:
    guarded.rules([allow("WRITE", "TOPIC", KNOWN), allow("READ", "TOPIC", KNOWN), allow("READ", "GROUP", "*")])
    with RawConnection(guarded) as connection:
        assert connection.produce(KNOWN, batch()).error_code == 0
        assert connection.produce(ABSENT, batch()).error_code == 29
        both = [(KNOWN, 0, 0, -1, 1 << 20), (ABSENT, 0, 0, -1, 1 << 20)]
        answered = connection.fetch_many(both)
        assert [topic.partitions[0].error_code for topic in answered.topics] == [0, 29]
        assert answered.topics[0].partitions[0].records
        assert not answered.topics[1].partitions[0].records
        listed = connection.ask(3, 9, _all_topics())
        assert [topic.name for topic in listed.topics] == [KNOWN]
        assert listed.topics[0].topic_authorized_operations == 1 << 3 | 1 << 4 | 1 << 8
        assert listed.cluster_authorized_operations == 0


def test_a_topic_that_may_not_be_described_has_no_id(guarded: GuardedBroker) -> None:
    known = guarded.broker.topics.by_name(KNOWN).topic_id
    request = messages.request(3, 12)
    asked = request.MetadataRequest(
        topics=[request.MetadataRequestTopic(topic_id=known, name=None)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    with RawConnection(guarded) as connection:
        (topic,) = connection.ask(3, 12, asked).topics
    assert (int(topic.error_code), topic.name) == (100, None)


def test_asking_for_a_topic_creates_it_only_with_the_right_to_create(guarded: GuardedBroker) -> None:
    row = next(row for row in ROWS if row.key == 3)
    guarded.rules([allow("DESCRIBE", "TOPIC", ABSENT)])
    assert 29 in _codes(guarded, row, ABSENT)
    assert guarded.broker.topics.find(ABSENT) is None
    guarded.rules([allow("DESCRIBE", "TOPIC", ABSENT), allow("CREATE", "CLUSTER", "kafka-cluster")])
    assert not AUTHORIZATION_FAILED & set(_codes(guarded, row, ABSENT))
    assert guarded.broker.topics.find(ABSENT) is not None


def test_rules_of_another_principal_or_host_give_nothing(guarded: GuardedBroker) -> None:
    row = next(row for row in ROWS if row.key == 2)
    guarded.rules([allow("ALL", "TOPIC", "*", principal="User:ann"), allow("ALL", "TOPIC", "*", host="10.1.1.1")])
    assert _codes(guarded, row, KNOWN) == [29]
    guarded.rules([allow("ALL", "TOPIC", "known", pattern_type="PREFIXED", host="127.0.0.1", principal="User:*")])
    assert _codes(guarded, row, KNOWN) == [0]


def test_a_follower_must_have_the_right_of_brokers(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", "*")])
    request = fetch.FetchRequest(1, 1, 0, 1, 1 << 20, 0, 0, -1, [])
    with RawConnection(guarded) as connection:
        answer = connection.call(1, 17, fetch.encode_fetch_request(request, 17))
    assert fetch.decode_fetch_response(answer, 0, len(answer), 17).error_code == 31


def test_refusals_are_counted_by_who_wanted_what(guarded: GuardedBroker) -> None:
    access = guarded.broker.access
    guarded.run(access.take_denied)
    row = next(row for row in ROWS if row.key == 0)
    for _ in range(3):
        _codes(guarded, row, KNOWN)
    denied = guarded.run(access.take_denied)
    assert denied == {("User:ANONYMOUS", "127.0.0.1", Operation.WRITE, ResourceType.TOPIC): 3}


def test_what_is_remembered_of_names_that_clients_choose_has_a_bound(guarded: GuardedBroker) -> None:
    rights = guarded.run(lambda: guarded.broker.access.rights(Principal("User", "ann"), "10.0.0.7"))
    known = rights.by_name(Operation.READ, ResourceType.TOPIC)
    guarded.run(lambda: [known[f"{number}" * 100] for number in range(10, 1000)])
    assert {len(name) for name in known} == {200}
    guarded.run(lambda: [known[f"{number}"] for number in range(MAX_DECISIONS + 1)])
    again = guarded.run(lambda: guarded.broker.access.rights(Principal("User", "ann"), "10.0.0.7"))
    assert len(again.by_name(Operation.READ, ResourceType.TOPIC)) == 0


def _all_topics() -> object:
    return messages.request(3, 9).MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )

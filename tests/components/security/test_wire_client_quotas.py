"""DescribeClientQuotas and AlterClientQuotas as Kafka has them: entities, defaults, filters and errors."""

from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.client_quotas import DESCRIBE, Entity, alter
from tiered.wire import messages

EXACT, DEFAULT, ANY = 0, 1, 2
INVALID, UNSUPPORTED = 42, 35


def ask(broker: BrokerProcess, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    make = messages.request(DESCRIBE, version)
    components = [make.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in parts]
    request = make.DescribeClientQuotasRequest(components=components, strict=strict)
    with RawConnection(broker) as connection:
        return connection.ask(DESCRIBE, version, request)


def described(
    broker: BrokerProcess, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[Entity, dict[str, float]]:
    answer = ask(broker, *parts, strict=strict, version=version)
    assert int(answer.error_code) == 0, answer.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_taken_away_in_every_version(broker: BrokerProcess, version: int) -> None:
    user: Entity = (("user", f"every-{version}"),)
    both: Entity = (("client-id", None), ("user", f"every-{version}"))
    changes = [(user, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}), (both, {"consumer_byte_rate": 7.0})]
    user_first: Entity = both[::-1]
    assert alter(broker, [changes[0], (user_first, {"consumer_byte_rate": 7.0})], version=version) == [0, 0]
    mine = ("user", EXACT, f"every-{version}")
    assert described(broker, mine, version=version) == dict(changes)
    assert alter(broker, [(user, {"producer_byte_rate": None, "request_percentage": 20.0})], version=version) == [0]
    assert described(broker, mine, strict=True, version=version) == {user: {"request_percentage": 20.0}}
    assert alter(
        broker, [(user, {"request_percentage": None}), (both, {"consumer_byte_rate": None})], version=version
    ) == [0, 0]
    assert described(broker, mine, version=version) == {}


def test_filters_find_what_kafkas_do_and_refuse_what_contradicts_itself(broker: BrokerProcess) -> None:
    entities: list[Entity] = [
        (("user", "found"),),
        (("user", None),),
        (("client-id", "found"),),
        (("client-id", "app"), ("user", "found")),  # In Kafka's order.
        (("ip", "10.1.2.3"),),
        (("ip", None),),
    ]
    changes = [
        (entity, {"connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate": at + 1.0})
        for at, entity in enumerate(entities)
    ]
    assert alter(broker, changes) == [0] * len(changes)
    assert set(described(broker)) >= set(entities)
    assert set(described(broker, ("user", EXACT, "found"))) == {entities[0], entities[3]}
    assert set(described(broker, ("user", EXACT, "found"), strict=True)) == {entities[0]}
    assert set(described(broker, ("user", DEFAULT, None))) == {entities[1]}
    assert set(described(broker, ("ip", ANY, None))) == {entities[4], entities[5]}
    assert set(described(broker, ("user", ANY, None), ("client-id", EXACT, "app"))) == {entities[3]}
    assert described(broker, ("user", EXACT, "nobody")) == {}
    for wrong, code in (
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "x")], INVALID),
        ([("user", ANY, "x")], INVALID),
        ([("user", 3, None)], INVALID),
        ([("user", EXACT, "x"), ("user", EXACT, "y")], INVALID),
        ([("user", EXACT, "x"), ("ip", ANY, None)], INVALID),
        ([("group", ANY, None)], UNSUPPORTED),
    ):
        answer = ask(broker, *wrong)
        assert (int(answer.error_code), answer.entries) == (code, None), wrong
        assert answer.error_message
    assert alter(broker, [(entity, dict.fromkeys(values)) for entity, values in changes]) == [0] * len(changes)


def test_each_entity_of_a_change_has_its_own_error(broker: BrokerProcess) -> None:
    right: Entity = (("client-id", "right"),)
    wrong: list[tuple[Entity, dict[str, float | None]]] = [
        ((), {"producer_byte_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        ((("group", "g"),), {"producer_byte_rate": 1.0}),
        ((("user", "a"), ("user", "b")), {"producer_byte_rate": 1.0}),
        ((("user", "a"), ("ip", "::1")), {"connection_creation_rate": 1.0}),
        ((("ip", "no.address"),), {"connection_creation_rate": 1.0}),
        ((("ip", "::1"),), {"producer_byte_rate": 1.0}),
        ((("user", "a"),), {"connection_creation_rate": 1.0}),
        ((("user", "b"),), {"producer_byte_rate": 0.0}),
        ((("user", "c"),), {"producer_byte_rate": 1.5}),
        ((("user", "d"),), {"request_percentage": float("nan")}),
        ((("user", "e"),), {"unheard_of": None}),
        ((("user", "x" * 300),), {"producer_byte_rate": 1.0}),
        ((("user", "a\0b"),), {"producer_byte_rate": 1.0}),
        (right, {"producer_byte_rate": 2.0}),
    ]
    codes = alter(broker, [*wrong[:7], (right, {"producer_byte_rate": 1.0}), *wrong[7:]])
    assert codes == [INVALID] * 7 + [0] + [INVALID] * 8
    assert described(broker, ("client-id", EXACT, "right")) == {right: {"producer_byte_rate": 1.0}}
    assert alter(broker, [(right, {"producer_byte_rate": None})]) == [0]


def test_validate_only_sets_no_quota(broker: BrokerProcess) -> None:
    tried: Entity = (("user", "tried"),)
    assert alter(broker, [(tried, {"producer_byte_rate": 1.0})], validate_only=True) == [0]
    assert alter(broker, [(tried, {"producer_byte_rate": -1.0})], validate_only=True) == [INVALID]
    assert described(broker, ("user", EXACT, "tried")) == {}

"""Which of Kafka's client quotas counts for whom, which may be set, and which a filter finds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidRequest
from tiered.rules.security.quotas import (
    EffectiveQuota,
    MatchType,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
    QuotaTable,
    check_value,
)

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
# From the most to the least specific one (KIP-55), and what of its name those that share it have in common.
RANKED = [
    (QuotaEntity(user="alice", client_id="app"), ("alice", "app")),
    (QuotaEntity(user="alice", client_id=""), ("alice", "app")),
    (QuotaEntity(user="alice"), ("alice", None)),
    (QuotaEntity(user="", client_id="app"), ("alice", "app")),
    (QuotaEntity(user="", client_id=""), ("alice", "app")),
    (QuotaEntity(user=""), ("alice", None)),
    (QuotaEntity(client_id="app"), (None, "app")),
    (QuotaEntity(client_id=""), (None, "app")),
]
OTHERS = [QuotaEntity(user="bob"), QuotaEntity(user="bob", client_id="app"), QuotaEntity(client_id="other")]


@given(st.sets(st.integers(0, len(RANKED) - 1)))
def test_the_most_specific_quota_counts(present: set[int]) -> None:
    table = QuotaTable(
        [(RANKED[rank][0], PRODUCE, float(rank + 1)) for rank in present]
        + [(entity, PRODUCE, 99.0) for entity in OTHERS]
        + [(RANKED[0][0], QuotaKey.CONSUMER_BYTE_RATE, 77.0)]
    )
    found = table.of_client(PRODUCE, "alice", "app")
    if not present:
        assert found is None
    else:
        user, client_id = RANKED[min(present)][1]
        assert found == EffectiveQuota(value=min(present) + 1.0, user=user, client_id=client_id)


def test_quotas_of_one_kind_say_nothing_of_another() -> None:
    table = QuotaTable([(QuotaEntity(user=""), "request_percentage", 20.0), (QuotaEntity(user="x"), "from_later", 1.0)])
    assert [key for key in QuotaKey if table.limits(key)] == [QuotaKey.REQUEST_PERCENTAGE]
    assert table.of_client(PRODUCE, "alice", "app") is None
    assert not any(QuotaTable().limits(key) for key in QuotaKey)


def test_an_address_has_its_own_quota_or_the_default() -> None:
    key = QuotaKey.CONNECTION_CREATION_RATE
    table = QuotaTable([(QuotaEntity(ip=""), key, 10.0), (QuotaEntity(ip="::1"), key, 3.0)])
    assert (table.of_address("::1"), table.of_address("127.0.0.1")) == (3.0, 10.0)
    assert table.limits(key)
    assert QuotaTable([(QuotaEntity(ip="::1"), key, 3.0)]).of_address("127.0.0.1") is None


@pytest.mark.parametrize(
    ("entity", "name", "value", "word"),
    [
        (QuotaEntity(user="a"), "connection_creation_rate", 1.0, "no quota of a user"),
        (QuotaEntity(ip="::1"), "producer_byte_rate", 1.0, "no quota of an address"),
        (QuotaEntity(user="a"), "bytes", 1.0, "producer_byte_rate"),
        (QuotaEntity(user="a"), "producer_byte_rate", 0.0, "greater than 0"),
        (QuotaEntity(user="a"), "producer_byte_rate", -1.0, "greater than 0"),
        (QuotaEntity(user="a"), "request_percentage", float("nan"), "greater than 0"),
        (QuotaEntity(user="a"), "request_percentage", float("inf"), "greater than 0"),
        (QuotaEntity(user="a"), "producer_byte_rate", 1e308, "at the most"),
        (QuotaEntity(user="a"), "controller_mutation_rate", 1e19, "at the most"),
        (QuotaEntity(user="a"), "consumer_byte_rate", 1.5, "whole"),
        (QuotaEntity(ip="::1"), "connection_creation_rate", 2.0**31, "largest"),
    ],
)
def test_what_cannot_be_a_quota_is_refused(entity: QuotaEntity, name: str, value: float, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        check_value(entity, name, value)


def test_the_largest_number_of_kafka_is_possible_and_one_beyond_it_that_is_stored_counts_as_it() -> None:
    check_value(QuotaEntity(user="a"), "producer_byte_rate", float(2**63 - 1))
    table = QuotaTable(
        [(QuotaEntity(user="a"), PRODUCE, 1e308), (QuotaEntity(ip=""), QuotaKey.CONNECTION_CREATION_RATE, 1e308)]
    )
    assert table.of_client(PRODUCE, "a", "") == EffectiveQuota(value=2.0**63, user="a", client_id=None)
    assert table.of_address("::1") == 2.0**63


def test_fractions_are_possible_where_kafka_allows_them() -> None:
    check_value(QuotaEntity(user="a"), "request_percentage", 0.5)
    check_value(QuotaEntity(client_id="a"), "controller_mutation_rate", 0.1)
    check_value(QuotaEntity(ip=""), "connection_creation_rate", 5.0)


def test_a_filter_finds_by_name_by_default_and_by_kind_and_strictly_nothing_else() -> None:
    every = [entity for entity, _ in RANKED] + [QuotaEntity(ip="::1"), QuotaEntity(ip="")]

    def found(strict: bool = False, **parts: tuple[MatchType, str]) -> list[QuotaEntity]:
        return [entity for entity in every if QuotaFilter(parts=parts, strict=strict).matches(entity)]

    exact_alice = (MatchType.EXACT, "alice")
    assert found() == every
    assert found(strict=True) == []
    assert found(user=exact_alice) == every[:3]
    assert found(user=exact_alice, strict=True) == [every[2]]
    assert found(user=(MatchType.DEFAULT, "")) == every[3:6]
    assert found(user=(MatchType.ANY, "")) == every[:6]
    assert found(user=(MatchType.ANY, ""), client_id=(MatchType.DEFAULT, "")) == [every[1], every[4]]
    assert found(ip=(MatchType.ANY, ""), strict=True) == every[-2:]
    for names in itertools.product(("alice", "bob"), ("app", "other")):
        user, client_id = ((MatchType.EXACT, name) for name in names)
        wanted = [every[0]] if names == ("alice", "app") else []
        assert found(user=user, client_id=client_id, strict=True) == wanted

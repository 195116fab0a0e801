"""The buckets of one broker: shared as their quotas say, kept across changes, bounded however many names there are."""

import pytest

from tiered.broker.security import client_quotas
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.config import BrokerSettings
from tiered.meta.security import ClientQuotaRow
from tiered.rules.security.quotas import QuotaFilter
from tiered.runtime import SystemClock


def made(*rows: ClientQuotaRow) -> ClientQuotas:
    quotas = ClientQuotas(SystemClock(), BrokerSettings)
    quotas.take(rows)
    return quotas


def row(
    user: str | None = None, client: str | None = None, ip: str | None = None, *, quota: str, value: float
) -> ClientQuotaRow:
    return ClientQuotaRow(user_name=user, client_id=client, ip=ip, quota=quota, value=value)


def test_nothing_is_limited_until_somebody_has_a_quota() -> None:
    quotas = made()
    assert not any((quotas.limits_produce, quotas.limits_fetch, quotas.limits_requests, quotas.limits_mutations))
    quotas.take((row("alice", quota="consumer_byte_rate", value=5.0),))
    assert (quotas.limits_produce, quotas.limits_fetch) == (False, True)
    assert quotas.of_client("alice", "a").fetch is not None
    assert quotas.of_client("bob", "a").fetch is None
    quotas.take(())
    assert quotas.of_client("alice", "a").fetch is None


def test_a_users_quota_is_shared_and_one_with_a_client_id_is_not() -> None:
    quotas = made(
        row("alice", quota="producer_byte_rate", value=100.0), row("bob", "", quota="producer_byte_rate", value=100.0)
    )
    assert quotas.of_client("alice", "a").produce is quotas.of_client("alice", "b").produce
    assert quotas.of_client("bob", "a").produce is not quotas.of_client("bob", "b").produce
    assert quotas.of_client("bob", "a").produce is quotas.of_client("bob", "a").produce


def test_what_was_used_stays_used_when_the_value_changes_or_another_quota_does() -> None:
    quotas = made(row("alice", quota="producer_byte_rate", value=100.0))
    bucket = quotas.of_client("alice", "a").produce
    assert bucket is not None
    assert bucket.take(2200.0, SystemClock().monotonic_ms()) > 10_000
    quotas.take(
        (row("alice", quota="producer_byte_rate", value=200.0), row("bob", quota="producer_byte_rate", value=1.0))
    )
    again = quotas.of_client("alice", "b").produce
    assert again is bucket
    assert again.rate_per_s == 200.0
    assert again.rest_ms(SystemClock().monotonic_ms()) > 9_000


def test_names_that_clients_make_up_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_REMEMBERED", 100)
    quotas = made(row(client="", quota="producer_byte_rate", value=100.0))
    for number in range(client_quotas.MAX_REMEMBERED + 50):
        quotas.of_client("ANONYMOUS", f"made-up-{number}")
    assert len(quotas._clients) == len(quotas._buckets) == client_quotas.MAX_REMEMBERED
    assert quotas.of_client("ANONYMOUS", "made-up-60").produce is quotas.of_client("ANONYMOUS", "made-up-60").produce


def test_an_address_has_one_bucket_however_often_it_comes() -> None:
    quotas = made(row(ip="", quota="connection_creation_rate", value=3.0))
    assert quotas.of_address("10.0.0.1") is quotas.of_address("10.0.0.1")
    assert quotas.of_address("10.0.0.1") is not quotas.of_address("10.0.0.2")


def test_quotas_of_names_unknown_here_are_shown_and_limit_nobody() -> None:
    quotas = made(row("alice", quota="of_a_later_version", value=1.0))
    assert not quotas.limits_produce
    (values,) = quotas.describe(QuotaFilter(parts={})).values()
    assert values == {"of_a_later_version": 1.0}

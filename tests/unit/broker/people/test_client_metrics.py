"""Metrics that clients push: what a client is to push, and which pushes are refused."""

from uuid import UUID

import pytest

from tests import otlp
from tiered.broker.host.resource_configs import Kind, ResourceConfigs
from tiered.broker.people import client_metrics
from tiered.broker.people.client_metrics import ClientMetrics, Outcome
from tiered.config import BrokerSettings
from tiered.runtime import SystemClock

ALICE, MALLORY = "User:alice", "User:mallory"
FACTS = {"client_id": "app"}
CLIENT = UUID(int=7)


def metrics(*, wanted: str | None = "org.apache.kafka.consumer.", most: int = 1000) -> ClientMetrics:
    settings = BrokerSettings.of({"tiered.metrics.max.series": str(most)})
    configs = ResourceConfigs(lambda: settings)
    if wanted is not None:
        configs.take({(Kind.CLIENT_METRICS, "all"): {"metrics": wanted, "interval.ms": "60000"}})
    return ClientMetrics(SystemClock(), configs, lambda: settings)


async def push(
    made: ClientMetrics,
    instance_id: UUID | None,
    subscription_id: int,
    data: bytes = b"",
    principal: str = ALICE,
) -> Outcome:
    return await made.push(
        instance_id, principal, FACTS, subscription_id=subscription_id, is_leaving=False, compression=0, data=data
    )


async def test_a_client_without_an_id_gets_one_and_may_not_ask_again_at_once() -> None:
    made = metrics()
    outcome, instance_id, given = made.subscribe(None, ALICE, FACTS)
    assert (outcome, given.metrics, given.interval_ms) == (
        Outcome.TAKEN,
        ("org.apache.kafka.consumer.",),
        60_000,
    )
    assert made.subscribe(instance_id, ALICE, FACTS)[0] is Outcome.TOO_SOON
    assert [each.instance_id for each in made.clients()] == [instance_id]


async def test_a_push_is_taken_once_in_an_interval_and_for_what_was_asked() -> None:
    made = metrics()
    given = made.subscribe(CLIENT, ALICE, FACTS)[2]
    assert await push(made, None, given.subscription_id) is Outcome.INVALID
    assert await push(made, CLIENT, given.subscription_id + 1) is Outcome.UNKNOWN_SUBSCRIPTION
    assert made.subscribe(CLIENT, ALICE, FACTS)[0] is Outcome.TAKEN, "it may ask anew at once"
    assert await push(made, CLIENT, given.subscription_id, b"\xff") is Outcome.UNREADABLE
    assert await push(made, CLIENT, given.subscription_id) is Outcome.TOO_SOON
    assert made.outcomes[Outcome.TOO_SOON] == 1


async def test_what_nobody_has_subscribed_to_is_not_looked_into() -> None:
    made = metrics(wanted=None)
    given = made.subscribe(CLIENT, ALICE, FACTS)[2]
    assert given.metrics == ()
    assert await push(made, CLIENT, given.subscription_id, b"\xff") is Outcome.TAKEN


async def test_nobody_pushes_as_the_client_of_another_principal() -> None:
    made = metrics()
    given = made.subscribe(CLIENT, ALICE, FACTS)[2]
    assert made.subscribe(CLIENT, MALLORY, FACTS)[1] != CLIENT
    assert await push(made, CLIENT, given.subscription_id, principal=MALLORY) is Outcome.INVALID
    assert await push(made, CLIENT, given.subscription_id) is Outcome.TAKEN


async def test_a_principal_with_more_than_half_of_the_room_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "MAX_CLIENTS", 10)
    made = metrics(most=10)

    async def pushed(number: int, principal: str, count: int) -> None:
        given = made.subscribe(UUID(int=number), principal, FACTS)[2]
        data = otlp.metrics_data(
            *(otlp.gauge(f"org.apache.kafka.consumer.n{number}", otlp.point(1)) for number in range(count))
        )
        assert await push(made, UUID(int=number), given.subscription_id, data, principal=principal) is Outcome.TAKEN

    def kept(principal: str) -> list[int]:
        return [len(client.series) for client in made.clients() if client.principal == principal]

    for number in range(100, 103):
        await pushed(number, MALLORY, 4)
    assert kept(MALLORY) == [4, 4, 2]
    await pushed(7, ALICE, 5)
    assert (kept(ALICE), kept(MALLORY)) == ([5], [2]), "who was heard of longest ago goes first, until there is room"
    for number in range(200, 220):
        await pushed(number, MALLORY, 0)
    assert kept(ALICE) == [5], "its client is not the one that goes"
    assert len(made.clients()) == 10


async def test_a_number_with_very_long_labels_is_not_kept() -> None:
    made = metrics()
    given = made.subscribe(CLIENT, ALICE, FACTS)[2]
    name = "org.apache.kafka.consumer.n"
    long = {f"label{number}": "x" * 250 for number in range(4)}
    data = otlp.metrics_data(otlp.gauge(name, otlp.point(1, **long), otlp.point(2, topic="t" * 249)))
    assert await push(made, CLIENT, given.subscription_id, data) is Outcome.TAKEN
    assert [series.value for series in made.clients()[0].series.values()] == [2]

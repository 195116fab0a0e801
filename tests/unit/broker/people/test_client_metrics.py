"""Metrics that clients push: who is asked for what, and which pushes are refused."""

from uuid import UUID

from tiered.broker.host.resource_configs import Kind, ResourceConfigs
from tiered.broker.people.client_metrics import ClientMetrics, Outcome
from tiered.config import BrokerSettings
from tiered.runtime import SystemClock

FACTS = {"client_id": "app"}
CLIENT = UUID(int=7)


def metrics() -> ClientMetrics:
    settings = BrokerSettings()
    configs = ResourceConfigs(lambda: settings)
    configs.take({(Kind.CLIENT_METRICS, "all"): {"metrics": "org.apache.kafka.consumer.", "interval.ms": "60000"}})
    return ClientMetrics(SystemClock(), configs, lambda: settings)


async def push(made: ClientMetrics, instance_id: UUID | None, subscription_id: int, data: bytes = b"") -> Outcome:
    return await made.push(
        instance_id, FACTS, subscription_id=subscription_id, is_leaving=False, compression=0, data=data
    )


async def test_a_client_without_an_id_gets_one_and_may_not_ask_again_at_once() -> None:
    made = metrics()
    outcome, instance_id, asked = made.subscribe(None, FACTS)
    assert (outcome, asked.metrics, asked.interval_ms) == (Outcome.TAKEN, ("org.apache.kafka.consumer.",), 60_000)
    assert made.subscribe(instance_id, FACTS)[0] is Outcome.TOO_SOON
    assert [each.instance_id for each in made.clients()] == [instance_id]


async def test_a_push_is_taken_once_in_an_interval_and_for_what_was_asked() -> None:
    made = metrics()
    asked = made.subscribe(CLIENT, FACTS)[2]
    assert await push(made, None, asked.subscription_id) is Outcome.INVALID
    assert await push(made, CLIENT, asked.subscription_id + 1) is Outcome.UNKNOWN_SUBSCRIPTION
    assert made.subscribe(CLIENT, FACTS)[0] is Outcome.TAKEN, "it may ask anew at once"
    assert await push(made, CLIENT, asked.subscription_id, b"\xff") is Outcome.UNREADABLE
    assert await push(made, CLIENT, asked.subscription_id) is Outcome.TOO_SOON
    assert made.outcomes[Outcome.TOO_SOON] == 1

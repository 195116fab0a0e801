"""Metrics that clients have pushed to this broker (KIP-714), as families of `/metrics`."""

from collections.abc import Iterator

from tiered.broker.broker import Broker
from tiered.broker.people.client_metrics import WHO, Outcome, Series
from tiered.server.http.metrics.prometheus import Family, Labels, counter, gauge


def client_families(broker: Broker) -> Iterator[Family]:
    """A family for each name; each number has the labels of its client."""
    pushed = broker.client_metrics
    clients = pushed.clients()
    yield gauge("tiered_telemetry_clients", "Clients that push metrics here, or asked if they should.", len(clients))
    yield Family(
        name="tiered_telemetry_pushes_total",
        kind="counter",
        documentation="Requests of clients with their metrics, by what became of them.",
        samples=[({"outcome": each.name.lower()}, pushed.outcomes[each]) for each in Outcome],
    )
    yield counter(
        "tiered_telemetry_omitted_total",
        "Numbers of clients that were not kept because of tiered.metrics.max.series.",
        pushed.omitted,
    )
    found: dict[str, list[tuple[Labels, Series]]] = {}
    for client in clients:
        facts = client.facts
        who = dict(zip(WHO, (client.instance_id, facts["client_id"], facts["client_software_name"]), strict=True))
        for series in client.series.values():
            found.setdefault(series.name, []).append(({**who, **dict(series.labels)}, series))
    for name, its in sorted(found.items()):
        yield Family(
            name=name,
            kind="counter" if all(series.is_counter for _, series in its) else "gauge",
            documentation="Pushed by clients.",
            samples=[(labels, series.value) for labels, series in its],
        )

"""AlterClientQuotas as tests ask it."""

from collections.abc import Mapping, Sequence

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tiered.wire import messages

DESCRIBE, ALTER = 48, 49
KAFKAS_ORDER = "client-id user ip"
Entity = tuple[tuple[str, str | None], ...]


def alter(
    broker: BrokerProcess,
    changes: Sequence[tuple[Entity, Mapping[str, float | None]]],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> list[int]:
    """The error code of each entity."""
    make = messages.request(ALTER, version)
    entries = [
        make.EntryData(
            entity=[make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                make.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in values.items()
            ],
        )
        for entity, values in changes
    ]
    with RawConnection(broker) as connection:
        answer = connection.ask(
            ALTER, version, make.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        )
    assert [[(each.entity_type, each.entity_name) for each in entry.entity] for entry in answer.entries] == [
        sorted(entity, key=lambda part: KAFKAS_ORDER.find(part[0])) for entity, _ in changes
    ]
    return [int(entry.error_code) for entry in answer.entries]

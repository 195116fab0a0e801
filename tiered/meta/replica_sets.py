"""Replica sets as SQL has them: everybody's standing, and the write of any number of partitions at once.

Owns the statements that are one for ten thousand partitions: a failure of a broker changes them all, and everything
else of the control plane waits for it. Must never decide: `elections` and `partitions` bring what is to be written.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Text, bindparam, select, text, update

from tiered.errors import LostRace
from tiered.meta.tables import broker, partition
from tiered.rules.replication.replica_set import Standing, Standings

if TYPE_CHECKING:
    from tiered.meta.partitions import PartitionRow


_STANDINGS = select(broker.c.broker_id, broker.c.broker_epoch, broker.c.fenced, broker.c.store_trouble)


def load_standings(conn: Connection) -> Standings:
    """Every broker's present registration. Behind `take_number` it stays true until the transaction ends."""
    return {
        row.broker_id: Standing(row.broker_epoch, bool(row.fenced), reaches_store=row.store_trouble is None)
        for row in conn.execute(_STANDINGS)
    }


def write(conn: Connection, rows: "Sequence[PartitionRow]") -> None:
    """Writes leader, epochs, ISR, replicas and `change_number` of all `rows`, in one statement on PostgreSQL.

    Each is at the `partition_epoch` after that of its row in SQL, which is the condition of its update. Raises
    `LostRace`, and nothing may be committed, when any row is at another one. Behind `take_number` none is.
    """
    if not rows:
        return
    written = (_write_at_once if conn.dialect.name == "postgresql" else _write_each)(conn, rows)
    if written != len(rows):
        raise LostRace(f"{len(rows) - written} of {len(rows)} partitions were changed meanwhile: read them again")


_LISTS = ("isr", "replicas", "adding_replicas", "removing_replicas")
_NUMBERS = ("leader", "leader_epoch", "partition_epoch", "change_number")
_NAMED = ("topic_id", "partition", *_NUMBERS)


def _write_each(conn: Connection, rows: "Sequence[PartitionRow]") -> int:
    statement = (
        update(partition)
        .where(
            partition.c.topic_id == bindparam("of_topic"),
            partition.c.partition == bindparam("of_number"),
            partition.c.partition_epoch == bindparam("before"),
        )
        .values(
            {name: bindparam(f"new_{name}") for name in _NUMBERS}
            | {name: bindparam(f"new_{name}", type_=Text) for name in _LISTS}
        )
    )
    values = [
        {"of_topic": row.topic_id, "of_number": row.partition, "before": row.partition_epoch - 1}
        | {f"new_{name}": getattr(row, name) for name in _NUMBERS}
        | {f"new_{name}": _written(getattr(row, name)) for name in _LISTS}
        for row in rows
    ]
    return conn.execute(statement, values).rowcount


# One statement over arrays: ten thousand of them would take as many round trips, all behind the feed's lock.
_WRITE_AT_ONCE = text("""
UPDATE partition AS p
SET leader = v.leader, leader_epoch = v.leader_epoch, partition_epoch = v.partition_epoch,
    isr = v.isr::jsonb, replicas = v.replicas::jsonb, adding_replicas = v.adding_replicas::jsonb,
    removing_replicas = v.removing_replicas::jsonb, change_number = v.change_number
FROM unnest(
    CAST(:topic_id AS uuid[]), CAST(:partition AS integer[]), CAST(:leader AS integer[]),
    CAST(:leader_epoch AS integer[]), CAST(:partition_epoch AS integer[]), CAST(:isr AS text[]),
    CAST(:replicas AS text[]), CAST(:adding_replicas AS text[]), CAST(:removing_replicas AS text[]),
    CAST(:change_number AS bigint[])
) AS v(topic_id, partition, leader, leader_epoch, partition_epoch, isr, replicas, adding_replicas,
       removing_replicas, change_number)
WHERE p.topic_id = v.topic_id AND p.partition = v.partition AND p.partition_epoch = v.partition_epoch - 1
""")


def _write_at_once(conn: Connection, rows: "Sequence[PartitionRow]") -> int:
    values: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _NAMED}
    values |= {name: [_written(getattr(row, name)) for row in rows] for name in _LISTS}
    return conn.execute(_WRITE_AT_ONCE, values).rowcount


@lru_cache(maxsize=4_096)
def _written(values: tuple[object, ...]) -> str:
    """A list as JSON; equal ones, of which there are many, are written once."""
    return json.dumps(values)

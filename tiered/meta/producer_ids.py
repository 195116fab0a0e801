"""Blocks of producer ids: each id is given out once in the life of a cluster.

Owns the next free id. A block that a broker did not use up before it died is lost, which is harmless.
"""

from sqlalchemy import Connection, update

from tiered.meta import history
from tiered.meta.cluster import take_number
from tiered.meta.tables import ONLY_ROW, producer_id_block

BLOCK_SIZE = 1_000


def allocate_block(conn: Connection, size: int = BLOCK_SIZE) -> range:
    """`size` producer ids that nobody else ever gets. Repeating it after an unknown outcome wastes a block only.

    Raises CoordinatorLoading where a broker might know of a block that this database has forgotten.
    """
    assert size > 0
    take_number(conn)  # So that it is noticed where the database forgets the grant.
    history.require_compared(conn)
    statement = (
        update(producer_id_block)
        .where(producer_id_block.c.id == ONLY_ROW)
        .values(next_producer_id=producer_id_block.c.next_producer_id + size)
        .returning(producer_id_block.c.next_producer_id)
    )
    end = int(conn.execute(statement).scalar_one())
    return range(end - size, end)

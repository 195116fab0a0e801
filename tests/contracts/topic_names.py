"""The names of the topics that a catalogue has."""

from sqlalchemy import Connection

from tiered.meta import topics


def names(conn: Connection) -> list[str]:
    return [row.name for row in topics.load_all(conn)]

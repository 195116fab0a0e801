"""What a topic's settings mean that nobody may have meant: said when it is made, changed and described.

Owns these words. Pure. Must never refuse anything: the broker takes what Kafka takes.
"""

from collections.abc import Mapping

from tiered.cli.output import counted

MIN_IN_SYNC = "min.insync.replicas"


def min_in_sync_warning(configs: Mapping[str, str | None], replicas: int) -> str | None:
    """Why more replicas must be in sync than there are; None where that is not so."""
    wanted = configs.get(MIN_IN_SYNC) or ""
    if not (wanted.isascii() and wanted.isdigit()) or not 0 < replicas < int(wanted):
        return None
    return (
        f"{MIN_IN_SYNC} is {wanted}, and each partition has {counted(replicas, 'replica')}: it counts as {replicas}, "
        "and acks=all is refused as soon as one is missing"
    )

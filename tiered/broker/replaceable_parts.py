"""Parts of a broker that can be replaced, as tests do.

Owns the list of seams. Must never decide anything: the options name every part that is not given.
"""

from dataclasses import dataclass

from tiered.broker.replication.channel import Channels
from tiered.broker.transactions.broker_channel import TransactionChannels
from tiered.cold.object_store import ObjectStore
from tiered.hot.file_system import FileSystem
from tiered.meta.engine import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The seams of one broker: the simulation and tests give their own."""

    database: Database | None = None
    store: ObjectStore | None = None
    files: FileSystem | None = None
    channels: Channels | None = None
    transaction_channels: TransactionChannels | None = None
    boot_id: str | None = None
    """Another one after a boot of the machine, with which goes what was not flushed."""

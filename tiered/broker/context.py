"""The values that all parts of one broker share: its surroundings, which never change, and its state, which does.

Owns the two shapes. Must never hold a part that decides something: a part is handed to those that need it, by
`broker.py` alone.
"""

from dataclasses import dataclass, field

from tiered.broker.host.data_folder import DataFolder
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.cold.own_store import OwnStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.hot.file_system import FileSystem
from tiered.hot.flusher import Flusher
from tiered.meta.engine import Database
from tiered.meta.security import Security
from tiered.metrics import CountersState
from tiered.runtime import BlockingPool, Clock


@dataclass(slots=True, kw_only=True)
class BrokerState:
    """The values that change while a broker runs. Parts read them each time, and never keep one."""

    settings: BrokerSettings
    security: Security = field(default_factory=Security)
    cluster_id: str = ""
    broker_epoch: int = -1
    serving: bool = False
    is_controller: bool = False
    """Whether this broker holds the controller's lease, as its last heartbeat saw it; `controller` alone sets it."""
    facts: dict[str, str | None] = field(default_factory=dict)
    """What the configs of this broker show beside its settings: its id, its rack, its addresses."""
    database_clock_ms: float | None = None
    """The database's clock, less the time that has passed here (`Clock.elapsed_ms`), as the last heartbeat saw it. None
    where this broker has the database for itself."""
    metadata_went_back: str | None = None
    """Why this broker serves no partition, where the metadata store has lost what was seen in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The surroundings of one broker. Nothing of it is another thing later; what changes is in `state`."""

    broker_id: int
    rack: str | None
    options: ServeOptions
    is_alone: bool
    """Nobody else can have this metadata store: several brokers need PostgreSQL."""
    clock: Clock
    counters: CountersState
    database: Database
    store: OwnStore
    data: DataFolder
    reserve: DiskReserve
    files: FileSystem
    disk: BlockingPool
    uploads: BlockingPool
    flusher: Flusher
    state: BrokerState

    @property
    def cluster_now_ms(self) -> int:
        """The present moment by the clock that all brokers share, the database's: for moments that one broker writes
        and another one compares with. This broker's own clock where nobody else is there."""
        clock_ms = self.state.database_clock_ms
        return self.clock.now_ms() if clock_ms is None else int(clock_ms + self.clock.elapsed_ms())

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force now, dynamic ones included."""
        return self.state.settings

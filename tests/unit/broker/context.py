"""A broker's context and state without a broker: real files, SQLite and a store in folders, and a clock that is set."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tiered.broker.context import BrokerContext, BrokerState
from tiered.broker.host.data_folder import DataFolder
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.cold.own_store import OwnStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.hot.file_system import RealFileSystem
from tiered.hot.flusher import Flusher
from tiered.meta import cluster
from tiered.meta.engine import Database
from tiered.metrics import CountersState
from tiered.runtime import BlockingPool, SystemClock


class SetClock(SystemClock):
    """The machine's clocks, and somebody who sets the one on the wall, and waits without waiting, and says how much
    work lies between two looks at the clock of work."""

    def __init__(self) -> None:
        self.set_by_ms = 0
        self.waited_ms = 0
        self.work_between_looks_ms = 0
        self._worked_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_by_ms

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.waited_ms

    def elapsed_ms(self) -> float:
        return super().elapsed_ms() + self.waited_ms

    def worked_ms(self) -> float:
        self._worked_ms += self.work_between_looks_ms
        return self._worked_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    context: BrokerContext
    state: BrokerState
    clock: SetClock


@cache
def _ready_catalogue() -> bytes:
    """A migrated SQLite file that describes a cluster: making its tables takes longer than most tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "meta.db"
        database = Database.open(f"sqlite:///{path}")
        database.migrate()
        database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="a-cluster", now_ms=0))
        database.close_sync()
        assert [each.name for each in path.parent.iterdir()] == [path.name], "a journal would have to be copied too"
        return path.read_bytes()


@asynccontextmanager
async def surroundings(
    folder: Path,
    sql: type[Database] = Database,
    store_at: Callable[[str], ObjectStore] = open_store,
    /,
    **settings: str,
) -> AsyncIterator[Surroundings]:
    """With settings by their names, dots as underscores. The metadata store describes a cluster."""
    options = ServeOptions(
        data_dir=folder / "data",
        meta_url=f"sqlite:///{folder / 'meta.db'}",
        store_url=f"file://{folder / 'objects'}",
        settings=BrokerSettings.of({name.replace("_", "."): value for name, value in settings.items()}),
    )
    clock, data = SetClock(), DataFolder(options.data_dir)
    if not (catalogue := folder / "meta.db").exists():
        catalogue.write_bytes(_ready_catalogue())
    database = sql.open(options.meta_url)
    store = OwnStore(store_at(options.store_url), clock)
    store.is_ours = True
    disk, uploads = BlockingPool("disk", threads=1), BlockingPool("upload", threads=1)
    context = BrokerContext(
        broker_id=options.broker_id,
        rack=None,
        options=options,
        is_alone=True,
        clock=clock,
        counters=CountersState(),
        database=database,
        store=store,
        data=data,
        reserve=DiskReserve(data),
        files=RealFileSystem(),
        disk=disk,
        uploads=uploads,
        flusher=Flusher(disk, clock),
        state=BrokerState(settings=options.settings),
    )
    try:
        yield Surroundings(context=context, state=context.state, clock=clock)
    finally:
        store.close()
        disk.close()
        uploads.close()
        await database.close()
        data.release()

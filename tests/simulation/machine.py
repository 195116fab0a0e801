"""A machine of the cluster: its disk, its clock, and the broker process that runs on it or does not.

Owns the lives of the process: a start, a controlled shutdown, kill -9, a power loss, SIGSTOP, an exit that the
broker chose itself, after which its supervisor starts it again. Must never decide when: the nemesis does.
"""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.clock import SimClock
from tests.simulation.database import SimDatabase
from tests.simulation.disk import Disk, ProcessFiles
from tests.simulation.loop import Process
from tests.simulation.network import Unanswered
from tests.simulation.store import ProcessStore
from tests.simulation.transaction_channels import SimTransactionChannels
from tiered.broker.broker import Broker
from tiered.broker.replaceable_parts import BrokerParts
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import RequestTimedOut, TieredError
from tiered.meta.brokers import BrokerRow
from tiered.wire.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tests.simulation.world import World

RESTART_S = 0.5


class Machine:
    """`b<id>` of the network."""

    def __init__(self, world: "World", broker_id: int, root: Path, settings: BrokerSettings) -> None:
        self.world = world
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.root = root / self.name
        self.root.mkdir(parents=True)
        self.disk = Disk(self.root)
        self.clock = SimClock(world.loop)
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.is_serving = False
        self.boots = 0
        self._settings = settings
        self._stop: asyncio.Event | None = None
        self._graveyard: list[object] = []

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    # Its life

    def start(self) -> None:
        assert not self.is_up, self.name
        self.world.trace(self.name, "starts")
        process = self.process = Process(self.world.loop, self.name)
        self.is_serving = False
        process.spawn(self._live(process), name=self.name)

    async def _live(self, process: Process) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                broker = self.broker = self._broker(process)
                self._stop = asyncio.Event()
                await broker.start(tasks, advertised=(self.name, 9092), http=(self.name, 8080))
                self.is_serving = True
                self.world.serving(self)
                waits = [tasks.create_task(self._stop.wait()), tasks.create_task(broker.must_stop.wait())]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                self.is_serving = False
                broker.begin_stop()
                await broker.stop()
        except BaseExceptionGroup as group:
            self._exited(process, group)
        except (TieredError, OSError) as error:
            self._exited(process, error)
        else:
            self._exited(process, None)

    def _exited(self, process: Process, error: BaseException | None) -> None:
        self.world.trace(self.name, f"exits: {error!r}")
        self.world.note_exit(self, error)
        self._end(process)
        if not self.world.is_over:
            self.world.loop.call_later(RESTART_S, self._restart, context=self.world.context)

    def _restart(self) -> None:
        if not self.is_up:
            self.start()

    def _broker(self, process: Process) -> Broker:
        options = ServeOptions(
            data_dir=self.root,
            meta_url=f"sqlite:///{self.root}/unused.db",
            store_url=f"file://{self.root}/unused",
            broker_id=self.broker_id,
            rack=f"rack-{self.broker_id}",
            settings=self._settings,
        )
        world = self.world
        parts = BrokerParts(
            database=SimDatabase(world.sql, self.name, process),
            store=ProcessStore(world.bucket, world.network, self.name, process, world.rng),
            files=ProcessFiles(self.disk, process),
            channels=SimChannels(self, process),
            transaction_channels=SimTransactionChannels(self),
            boot_id=self.boot_id(),
        )
        return Broker(options, self.clock, parts)

    def _end(self, process: Process) -> None:
        process.kill()
        broker, self.broker = self.broker, None
        if broker is not None:
            # Everything that the process held lives on until the run is over: what its destructors would do, at
            # moments that nobody chose, is none of the run's business.
            self._graveyard.append(broker)
            try:
                broker.data.release()
            except OSError:
                pass  # It had released it itself.
        self.world.checker.alive.pop(self.name, None)
        self.is_serving = False

    # What happens to it

    def kill(self) -> None:
        """kill -9: the page cache survives."""
        assert self.process is not None
        self.world.trace(self.name, "killed")
        self._end(self.process)

    def lose_power(self) -> None:
        """What was not synced may be gone, and the machine boots again."""
        if self.is_up:
            assert self.process is not None
            self._end(self.process)
        self.world.trace(self.name, "loses power")
        self.boots += 1
        self.world.checker.lossy.add(self.name)
        self.disk.lose_power(self.world.rng)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        if self.is_up:
            assert self.process is not None
            self._end(self.process)
        self.world.trace(self.name, "loses its disk")
        self.boots += 1
        self.world.checker.lossy.add(self.name)
        self.world.checker.wiped(self.name)
        self.disk.wipe()
        self.root.mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        """SIGTERM."""
        if self._stop is not None and self.is_serving:
            self.world.trace(self.name, "is asked to stop")
            self._stop.set()

    def marker_epoch(self) -> int | None:
        """The registration that the durable marker names, for people."""
        try:
            return int(json.loads((self.root / "registration.json").read_text())["broker_epoch"])
        except (OSError, ValueError, KeyError):
            return None


class SimChannels:
    """A broker's `Channels`: questions to whichever process serves on the leader's machine as they are opened."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._process = process

    async def open(self, leader: BrokerRow) -> "SimChannel":
        world = self._machine.world
        target = world.machines[leader.broker_id]
        process = target.process
        if process is None or process.is_dead:
            await asyncio.sleep(world.network.delay(self._machine.name, target.name))
            raise RequestTimedOut(f"broker {leader.broker_id}: connection refused")
        return SimChannel(self._machine, target, process)


class SimChannel:
    """One connection of a follower to a leader's process. What is on its way may arrive after it was closed."""

    TIMEOUT_S = 2.0

    def __init__(self, follower: Machine, leader: Machine, process: Process) -> None:
        self._follower = follower
        self._leader = leader
        self._process = process
        self._asking: asyncio.Future[Any] | None = None
        self._is_closed = False

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        leader = self._leader
        world = leader.world
        if self._is_closed:
            raise RequestTimedOut("the channel was closed")

        async def answer() -> FetchResponse:
            broker = leader.broker
            if broker is None or not leader.is_serving:
                raise Unanswered("not serving yet")
            return await world.answer_fetch(broker, request)

        self._asking = world.loop.create_future()
        try:
            return await world.network.call(
                self._follower.name,
                leader.name,
                self._process,
                answer,
                timeout_s=self.TIMEOUT_S,
                into=self._asking,
            )
        except Unanswered as error:
            raise RequestTimedOut(str(error)) from None
        finally:
            self._asking = None

    def close(self) -> None:
        self._is_closed = True
        if self._asking is not None and not self._asking.done():
            self._asking.set_exception(Unanswered("the channel was closed"))

"""One run: three brokers, their clients and everything that goes wrong, from a seed to a verdict.

Owns the composition and the phases: the cluster starts, works under faults, is healed, and must then converge.
Must never use anything that differs between two runs of one seed.
"""

import asyncio
import gc
import logging
import shutil
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID

from sqlalchemy import Connection, insert

from tests.follower_questions import found_for
from tests.simulation import hooks
from tests.simulation.administrator import Administrator
from tests.simulation.books import Violation
from tests.simulation.checker import Checker
from tests.simulation.clients import ALL, Client, Consumer, IdTaker, Producer
from tests.simulation.clock import EPOCH_MS
from tests.simulation.committers import Committer
from tests.simulation.convergence import converge
from tests.simulation.database import Catalogue, SqlServer
from tests.simulation.job import Job
from tests.simulation.loop import NOBODY, PROCESS, Process, SimLoop, Stuck
from tests.simulation.machine import Machine
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.plan import SETTINGS, TOPIC, Outcome, Plan, plan_of
from tests.simulation.replica_reader import read_as_replica
from tests.simulation.stable_reader import StableReader
from tests.simulation.store import Bucket
from tests.simulation.transactors import Transactor
from tests.support.memory import folder_in_memory
from tiered.broker.broker import Broker
from tiered.broker.replication.answer import FollowerFetchEntry
from tiered.config import BrokerSettings
from tiered.errors import TieredError
from tiered.hot.segment_files import SHARED_OPEN_SEGMENTS
from tiered.ids import TopicId, TopicPartition
from tiered.meta import topics
from tiered.meta.tables import transactional_producer
from tiered.meta.transactions import TransactionChange
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.transactions.transaction_state import MAX_PRODUCER_EPOCH, TransactionState
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.fetch import FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult

START_S = 30.0
LONG_USED_PRODUCER_ID = 900_000_000


class World:
    """Everything that one run consists of."""

    def __init__(self, seed: int, catalogue: Catalogue, *, plan: Plan | None = None, traces: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.plan = plan or plan_of(seed)
        self.loop = SimLoop(Random(self.rng.random()))
        self.context = NOBODY
        self.network = Network(self.loop, Random(self.rng.random()))
        self.network.between_brokers_s = self.rng.choice([0.0, 0.03, 0.1, 0.3])
        self.sql = SqlServer(self.loop, Random(self.rng.random()), self.network, catalogue)
        self.bucket = Bucket()
        self.checker = Checker()
        self.nemesis = Nemesis(self, Random(self.rng.random()))
        self.machines: dict[int, Machine] = {}
        self.clients: list[Client] = []
        self.transactors: list[Transactor] = []
        self.stops_producing = False
        self.is_over = False
        self.counts: Counter[str] = Counter()
        self._traces = traces
        self._lines: list[str] = []
        self._digest = 0
        self._violation: str | None = None
        self._driver = catalogue.driver
        self._root = folder_in_memory("tiered-sim-")
        self._has_seen_lost = False
        """A process of that moment had seen what the database lost."""
        self._everything_read: asyncio.Event | None = None

    # What everybody tells

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000.0)

    def trace(self, who: str, what: str) -> None:
        what = what.replace(str(self._root), "")  # Each run has its own.
        self._digest = zlib.crc32(f"{self.loop.time():.6f} {who} {what}".encode(), self._digest)
        if self._traces:
            self._lines.append(f"{self.loop.time():9.4f} {who:8} {what}")

    def violate(self, message: str) -> None:
        """Ends the run."""
        raise Violation(message)

    def serving(self, machine: Machine) -> None:
        """The machine's process has registered and opened its logs."""
        broker = machine.broker
        assert broker is not None
        self.trace(machine.name, f"serves with epoch {broker.broker_epoch}")
        self.checker.registered(machine.name, broker.broker_epoch)

    def note_exit(self, machine: Machine, error: BaseException | None) -> None:
        if error is None:
            return
        for each in _leaves(error):
            if not isinstance(each, (TieredError, OSError, asyncio.CancelledError)):
                self.violation_outside(f"{machine.name} ended with a bug: {each!r}", each)
            self.counts[f"exit: {type(each).__name__}"] += 1

    def violation_outside(self, message: str, error: BaseException | None = None) -> None:
        """As `violate`, where an exception would not reach the run."""
        if self._violation is None:
            self._violation = message
            if error is not None and self._traces:
                import traceback

                self._lines.extend("".join(traceback.format_exception(error)).splitlines())
        self.loop.stop()

    def produce_failed(self, client: Client, error: Exception) -> None:
        self.counts[f"produce: {type(error).__name__}"] += 1
        self._check_error(error)

    def fetch_failed(self, client: Client, error: Exception) -> None:
        self.counts[f"fetch: {type(error).__name__}"] += 1
        self._check_error(error)

    def _check_error(self, error: Exception) -> None:
        from tiered.errors import Corrupt, OutOfOrderSequence

        if isinstance(error, OutOfOrderSequence) or (isinstance(error, Corrupt) and "halted" not in str(error)):
            self.violate(f"a client was told {type(error).__name__}: {error}")

    async def answer_fetch(self, broker: Broker, request: FetchRequest) -> FetchResponse:
        """A follower's question, as the leader's door has it answered; the records as bytes of their own."""
        found = await found_for(broker, request)
        topics = [
            FetchTopicResult(None, topic.topic_id, [_result(entry) for entry in entries])
            for topic, entries in found.topics
        ]
        return FetchResponse(0, 0, 0, topics)

    # The run

    def run(self) -> Outcome:
        hooks.install()
        hooks.Hooks.checker, hooks.Hooks.rng = self.checker, Random(self.rng.random())
        hooks.Hooks.answers.clear()
        hooks.Hooks.offsets_written = self._offsets_written
        hooks.Hooks.transitions_written = self._transitions_written
        hooks.Hooks.report = self.violation_outside
        SHARED_OPEN_SEGMENTS.__init__()  # type: ignore[misc]
        self.sql.on_change = self._sql_changed
        self.sql.on_forgotten = self._forgotten
        self.loop.after_step = self._look
        handler = _Complaints(self)
        product = logging.getLogger("tiered")
        level, product.propagate = product.level, False
        product.setLevel(logging.DEBUG if self._traces else logging.ERROR)
        product.addHandler(handler)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._run()
        finally:
            hooks.Hooks.checker = None
            outcome = self._outcome()
            self._tear_down()
            product.removeHandler(handler)
            logging.disable(logging.CRITICAL)  # What coroutines that are thrown away say to that
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # As those that were never begun
                gc.collect()
            logging.disable(logging.NOTSET)
            product.setLevel(level)
            product.propagate = True
            sys.unraisablehook = hook
            if was_enabled:
                gc.enable()
        return outcome

    def _run(self) -> None:
        main = self.loop.create_task(self._story())
        try:
            self.loop.run_until_complete(main)
        except (Violation, Stuck) as violation:
            self._violation = self._violation or str(violation)
        except RuntimeError as error:
            if self._violation is None:
                self._violation = f"the run ended early: {error}"
        except Exception as error:  # A bug of ours or theirs: the seed is reported either way
            import traceback

            self._violation = self._violation or f"{error!r}"
            self._lines.extend(traceback.format_exc().splitlines())
        if self._violation is None and self.loop.failures:
            self._violation = f"nobody handled: {self.loop.failures[0]}"

    def _look(self, process: Process) -> None:
        if process.partitions:
            try:
                self.checker.look(process, process.partitions)
            except Violation as violation:
                self.violation_outside(str(violation))

    def _sql_changed(self) -> None:
        try:
            self.checker.sql_changed(self._driver)
        except Violation as violation:
            self.violation_outside(str(violation))

    def _offsets_written(self, conn: Connection) -> None:
        for client in self.clients:
            if isinstance(client, Committer):
                try:
                    client.check_stored(conn)
                except Violation as violation:
                    self.violation_outside(str(violation))
        try:
            self._check_offsets(conn)
        except Violation as violation:
            self.violation_outside(str(violation))

    def _transitions_written(self, conn: Connection, written: Sequence[TransactionChange]) -> None:
        try:
            ongoing = TransactionState.ONGOING
            self.checker.transactions.decided(
                [
                    (each.before, each.after)
                    for each in written
                    if each.before is not None and each.before.state is ongoing and each.after.state.is_decided
                ]
            )
            for each in written:
                if each.after.state is ongoing:
                    self.nemesis.begins(each.after.told)
            self._check_offsets(conn)
        except Violation as violation:
            self.violation_outside(str(violation))

    def _check_offsets(self, conn: Connection) -> None:
        for transactor in self.transactors:
            transactor.check_stored(conn)

    async def _story(self) -> None:
        # Where commits are gathered for long, some wait in a coordinator that is replaced meanwhile.
        linger_ms = self.rng.choice([2, 2, 400])
        settings = BrokerSettings.of(SETTINGS | {"tiered.offset.commit.linger.ms": str(linger_ms)})
        for broker_id in range(1, self.plan.brokers + 1):
            self.machines[broker_id] = Machine(self, broker_id, self._root, settings)
        for machine in self.machines.values():
            machine.start()
        await self._until(self._all_serve, START_S, "the start")
        keys = self._create_topic("sim", self.plan.partitions)
        self._use_epochs_up()
        work = self._start_clients(keys)
        await asyncio.sleep(1.0)
        if self.plan.forgets:
            at_s = self.rng.uniform(0.2, 0.9) * self.plan.faults_s
            self.loop.call_later(at_s, self.sql.forget_after, self.plan.forgets, context=self.context)
        await self.nemesis.run(self.loop.time() + self.plan.faults_s)
        self.trace("nemesis", "heals")
        self.nemesis.heal()
        await asyncio.sleep(1.0)
        if self.plan.forgets and await self._is_refused():
            self.is_over = True
            self.checker.check_kept()
            return
        self.stops_producing = True
        await converge(self, work)
        for client in self.clients:
            if isinstance(client, Committer):
                await self._until(client.check, 10.0, "asking for a committed offset")
        if self.plan.transactors:
            await read_as_replica(self, self._root / "replica", settings, keys)
        self.is_over = True
        for task in work:
            task.cancel()
        failed = [task.exception() for task in work if task.done() and not task.cancelled() and task.exception()]
        if failed:
            raise failed[0]  # type: ignore[misc]
        if not self.counts["unavailable at the end"]:
            self.checker.transactions.check_ended({book.key for book in self.checker.books.values() if book.is_deleted})
            self.checker.check_converged([machine.name for machine in self.machines.values()])

    def _forgotten(self, lost: int) -> None:
        self.trace("sql", f"has lost {lost} changes after {self.sql.kept_change_number}")
        if lost:
            self.checker.database_forgot = True
            self._has_seen_lost = any(
                (history := machine.broker.database.history) is not None
                and history.seen is not None
                and history.seen.change_number > self.sql.kept_change_number
                for machine in self.machines.values()
                if machine.broker is not None
            )

    async def _is_refused(self) -> bool:
        """Whether everybody refuses the database, as somebody had seen what it lost. Nobody goes on alone."""

        async def is_over() -> bool:
            if not self.sql.has_forgotten:
                return False
            running = [each.broker for each in self.machines.values() if each.is_serving and each.broker is not None]
            if self.sql.is_refused():
                return all(each.state.metadata_went_back is not None for each in running)
            return len(running) == len(self.machines) and not self._has_seen_lost

        await self._until(is_over, 60.0, "refusing a database that went back, or going on with it")
        self.counts["refused a database that went back" if self.sql.is_refused() else "forgot nothing seen"] += 1
        if not self.sql.is_refused() and self.checker.database_forgot:
            self.checker.remembers(self._driver)
        return self.sql.is_refused()

    async def _all_serve(self) -> bool:
        return all(machine.is_serving for machine in self.machines.values())

    def _create_topic(self, name: str, partitions: int) -> list[TopicPartition]:
        """Through SQL, as an admin request would on a broker."""
        topic_id = UUID(int=self.rng.getrandbits(128), version=4)
        ids = sorted(self.machines)
        assignments = [ids[number % len(ids) :] + ids[: number % len(ids)] for number in range(partitions)]

        def create(conn: Connection) -> None:
            topics.create(
                conn, name=name, topic_id=topic_id, assignments=assignments, configs=TOPIC, now_ms=self.now_ms()
            )

        self.sql.change_now(create)
        return [TopicPartition(TopicId(topic_id), number) for number in range(partitions)]

    def _delete_topic(self, key: TopicPartition) -> None:
        """Its only partition may be of open transactions."""
        if self.sql.is_locked:
            self.loop.call_later(0.1, self._delete_topic, key, context=self.context)
            return
        self.trace("sql", f"deletes {key}")
        self.checker.deletes(key)
        for transactor in self.transactors:
            transactor.forget(key)
        now_ms = self.now_ms()
        self.sql.change_now(lambda conn: topics.delete_topic(conn, key.topic_id, now_ms=now_ms, purge_after_ms=now_ms))
        self.counts["topics deleted"] += 1

    def _use_epochs_up(self) -> None:
        """Of some transactional ids, which have been in use for long, so that they get another producer id soon."""
        if not self.plan.transactors or self.rng.random() < 0.6:
            return
        slots = int(SETTINGS["offsets.topic.num.partitions"])

        def use(conn: Connection) -> None:
            for number, (name, _) in enumerate(self._transactional_ids()[:-1]):
                conn.execute(
                    insert(transactional_producer).values(
                        transactional_id=name,
                        slot=coordinator_slot(name, slots),
                        producer_id=LONG_USED_PRODUCER_ID + number,
                        producer_epoch=MAX_PRODUCER_EPOCH - self.rng.randint(1, 8),
                        last_producer_epoch=-1,
                        previous_producer_id=-1,
                        next_producer_id=-1,
                        timeout_ms=1_000,
                        state=TransactionState.EMPTY.value,
                        protocol=1,
                        started_at_ms=None,
                        changed_at_ms=self.now_ms(),
                        coordinator_epoch=0,
                    )
                )

        self.sql.change_now(use)

    def _start_clients(self, keys: list[TopicPartition]) -> list["asyncio.Task[None]"]:
        clients = self.clients
        for key in keys:
            for acks in (ALL, ALL, 1):
                clients.append(Producer(self, len(clients), key, acks=acks))
            clients.append(Consumer(self, len(clients), key))
        if self.plan.forgets:
            clients += [IdTaker(self, f"c{len(clients) + number}", keys[0]) for number in range(3)]
        for _ in range(self.plan.groups):
            clients.append(Committer(self, len(clients), keys[0]))
        if self.plan.transactors:
            written = keys
            if self.rng.random() < 0.3:
                gone = self._create_topic("gone", 1)
                written = [*keys, *gone]
                self.loop.call_later(2.0 + 9.0 * self.rng.random(), self._delete_topic, *gone, context=self.context)
            for transactional_id, protocol in self._transactional_ids():
                transactor = Transactor(self, len(clients), transactional_id, written, protocol=protocol)
                clients.append(transactor)
                self.transactors.append(transactor)
            job = Job(self, len(clients), written)
            clients.append(job)
            self.transactors += job.tasks
            clients.append(Administrator(self, len(clients), keys[0]))
            for key in keys:
                clients.append(StableReader(self, len(clients), key))
        return [Process(self.loop, client.name).spawn(self._client(client)) for client in clients]

    def _transactional_ids(self) -> list[tuple[str, int]]:
        """With their protocols. The last one has two producers, as where one is taken for dead and goes on."""
        count = self.plan.transactors
        ids = [(f"transactor-{number}", 1 + number % 2) for number in range(count - 1)]
        return [*ids, (f"transactor-{count - 2}", self.rng.choice([1, 2]))] if count > 1 else []

    async def _client(self, client: Client) -> None:
        try:
            await client.run()
        except Violation as violation:
            self.violation_outside(str(violation))

    async def _until(self, condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
        deadline = self.loop.time() + seconds
        while not await condition():
            if self.loop.time() > deadline:
                raise Violation(f"liveness: {what} took more than {seconds:g} s")
            await asyncio.sleep(0.1)

    # The end

    def _outcome(self) -> Outcome:
        checker = self.checker
        if self._violation is not None and self._traces:
            self._lines.append(f"{self.loop.time():9.4f} {'VIOLATION':8} {self._violation}")
        return Outcome(
            seed=self.seed,
            violation=self._violation,
            digest=(self._digest << 64) ^ self.loop.digest,
            steps=self.loop.steps,
            virtual_s=self.loop.time(),
            acknowledged=checker.acknowledged,
            polled=checker.polled,
            elections=checker.elections,
            isr_changes=checker.isr_changes,
            truncations=checker.truncations,
            faults=dict(self.nemesis.faults),
            counts=dict(self.counts),
            trace=self._lines,
        )

    def _tear_down(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for machine in self.machines.values():
            if machine.is_up:
                assert machine.process is not None
                machine._end(machine.process)
        self.sql.abandon()
        self.loop.close()
        SHARED_OPEN_SEGMENTS.__init__()  # type: ignore[misc]
        shutil.rmtree(self._root, ignore_errors=True)


class _Complaints(logging.Handler):
    """What the product logs: lines of the trace, and a violation where it speaks of a bug."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        world = self._world
        who = process.name if process is not None else "-"
        if world._traces:
            world._lines.append(f"{world.loop.time():9.4f} {who:8} {record.levelname.lower()}: {record.getMessage()}")
        if record.exc_info is not None and record.exc_info[1] is not None:
            world.violation_outside(
                f"{who} logged a bug: {record.getMessage()}: {record.exc_info[1]!r}", record.exc_info[1]
            )
        elif (
            record.levelno >= logging.CRITICAL
            and "stopping:" not in record.getMessage()
            and not world.checker.database_forgot
        ):
            world.violation_outside(f"{who}: {record.getMessage()}")


def _result(entry: FollowerFetchEntry) -> FetchPartitionResult:
    partition = entry.partition
    return FetchPartitionResult(
        entry.asked.partition,
        0 if entry.error is None else error_code(entry.error),
        -1 if partition is None else partition.high_watermark,
        entry.segment_base_offset,
        -1 if partition is None else partition.log_start_offset,
        None if entry.records is None else bytearray(entry.records.read()),
        None,
        -1,
        entry.diverging,
    )


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]

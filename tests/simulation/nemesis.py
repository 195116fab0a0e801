"""What goes wrong, and when: a seeded rotation of faults, each with its end, and then healing.

Owns the choice. Keeps within what the design promises to survive: one loss of unsynced data at a time, while
another in-sync replica holds everything. Must never look into a broker: it sees SQL and machines.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.machine import Machine
from tests.simulation.network import SQL, STORE, Late
from tiered.broker.transactions.broker_channel import ProducersMarker
from tiered.formats.control_record import MarkerType
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from tests.simulation.world import World

HOUR_MS = 3_600_000


class Nemesis:
    """One run's."""

    def __init__(self, world: "World", rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._undo: list[Callable[[], object]] = []
        self._met_io_errors: set[str] = set()
        """Machines whose disk has failed and was not replaced yet."""
        self.faults: dict[str, int] = {}
        self._kinds: list[tuple[float, Callable[[], str | None]]] = [
            (3.0, self._kill),
            (2.0, self._power_loss),
            (2.5, self._pause),
            (1.5, self._cut_pair),
            (1.5, self._cut_one_way),
            (1.5, self._isolate),
            (1.0, self._cut_sql),
            (0.7, self._sql_down),
            (1.5, self._sql_loses_answers),
            (1.5, self._sql_commits_late),
            (0.5, self._sql_slow),
            (0.7, self._slow_links),
            (0.7, self._store_fails),
            (0.7, self._disk_full),
            (0.7, self._disk_fails),
            (0.5, self._clock_jumps),
            (1.2, self._stop),
            (0.5, self._wipe),
            (0.7, self._slow_disk),
        ]
        if world.plan.transactors:
            self._kinds.append((2.0, self._markers_come_late))
        self._breaks_next_markers = False
        self._late: dict[ProducerIdAndEpoch, Callable[[], None]] = {}
        """Requests with markers, by who must not be meant by them any more."""

    async def run(self, until_s: float) -> None:
        """Faults until then."""
        loop, rng, world = self._world.loop, self._rng, self._world
        kinds = [kind for _, kind in self._kinds]
        weights = [weight for weight, _ in self._kinds]
        world.sql.mishaps = world.plan.mishaps
        while True:
            await asyncio.sleep(rng.expovariate(1.0 / world.plan.fault_every_s))
            if loop.time() >= until_s or world.sql.has_forgotten:
                return
            (kind,) = rng.choices(kinds, weights)
            done = kind()
            if done is not None:
                name = done.split(":")[0]
                self.faults[name] = self.faults.get(name, 0) + 1
                world.trace("nemesis", done)

    def heal(self) -> None:
        """Everything is in order from here on."""
        for undo in self._undo:
            undo()
        world = self._world
        world.sql.mishaps = 0.0
        world.network.heal()
        for machine in world.machines.values():
            if machine.process is not None and machine.process.is_paused:
                machine.process.resume()
            # A process that has met an I/O error is restarted by whoever replaced the disk.
            if machine.name in self._met_io_errors and machine.is_up:
                machine.kill()
            if not machine.is_up:
                machine.start()

    # Whom

    def _victim(self) -> Machine | None:
        """A machine that is up, a leader rather than others."""
        rng, world = self._rng, self._world
        leaders = [row.leader for book in world.checker.books.values() if (row := book.row) and row.leader != -1]
        choice = rng.choice(leaders) if leaders and rng.random() < 0.6 else rng.choice(sorted(world.machines))
        machine = world.machines[choice]
        process = machine.process
        return machine if machine.is_serving and process is not None and not process.is_paused else None

    def _may_lose(self, machine: Machine) -> bool:
        """Whether everything committed survives the loss of what this machine has not synced."""
        checker = self._world.checker
        if checker.lossy - {machine.name} or self._met_io_errors - {machine.name}:
            return False
        for book in checker.books.values():
            row = book.row
            if row is None:
                continue
            for broker_id, epoch in row.isr:
                if broker_id != machine.broker_id and checker.registrations[broker_id][0] != epoch:
                    return False  # A placeholder: the others may be all there is.
                if broker_id != machine.broker_id and checker.alive.get(f"b{broker_id}") != epoch:
                    return False  # About to register again, cleanly or not
            if not any(broker_id != machine.broker_id for broker_id, _ in row.isr):
                return False
        return True

    def _later(self, seconds: float, undo: Callable[[], object]) -> None:
        """Ends a fault, then or at the healing, whichever comes first; once."""
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                undo()

        self._undo.append(once)
        self._world.loop.call_later(seconds, once, context=self._world.context)

    def _start_later(self, machine: Machine, seconds: float) -> None:
        def start() -> None:
            if not machine.is_up:
                machine.start()

        self._later(seconds, start)

    # Faults. Each returns what it did, or None when it could not.

    def _kill(self) -> str | None:
        machine = self._victim()
        if machine is None:
            return None
        machine.kill()
        self._start_later(machine, self._rng.choice([0.1, 1.0, 5.0]) * self._rng.random())
        return f"kill: {machine.name}"

    def _power_loss(self) -> str | None:
        machine = self._victim()
        if machine is None or not self._may_lose(machine):
            return None
        machine.lose_power()
        self._start_later(machine, self._rng.choice([0.5, 5.0]) * self._rng.random())
        return f"power loss: {machine.name}"

    def _wipe(self) -> str | None:
        machine = self._victim()
        if machine is None or not self._may_lose(machine):
            return None
        machine.wipe()
        self._start_later(machine, 3.0 * self._rng.random())
        return f"disk wiped: {machine.name}"

    def _pause(self) -> str | None:
        machine = self._victim()
        if machine is None:
            return None
        process = machine.process
        assert process is not None
        process.pause()
        seconds = self._rng.choice([0.5, 3.0, 8.0]) * self._rng.random()
        self._later(seconds, lambda: None if process.is_dead else process.resume())
        return f"SIGSTOP: {machine.name} for {seconds:.2f} s"

    def _markers_come_late(self) -> str:
        self._breaks_next_markers = True
        return "late markers: of the next transaction"

    def breaks(self, sender: Machine, markers: Sequence[ProducersMarker]) -> Late | None:
        """Whether the connection breaks on which the broker sends these: they arrive when the producer's next
        transaction is open.

        Where they raise no epoch, the next ones of the same coordinator must not overtake them: it dies.
        """
        raises_epoch = all(each.raises_epoch for each in markers)
        if not self._breaks_next_markers or not (raises_epoch or markers[0].marker.type is MarkerType.COMMIT):
            return None
        self._breaks_next_markers = False
        world, producer = self._world, markers[0].producer
        world.trace("nemesis", f"markers for {producer} are late")
        if not raises_epoch:
            world.loop.call_soon(sender.kill, context=world.context)
            self._start_later(sender, 0.3 * self._rng.random())
        return lambda arrive: self._late.update({producer: arrive})

    def begins(self, producer: ProducerIdAndEpoch) -> None:
        """A transaction, or one of its partitions, is in SQL."""
        arrive = self._late.pop(producer, None)
        if arrive is not None:
            self._world.loop.call_later(0.3 * self._rng.random(), arrive, context=self._world.context)

    def _stop(self) -> str | None:
        machine = self._victim()
        if machine is None:
            return None
        machine.stop()
        return f"controlled stop: {machine.name}"

    def _cut(self, pairs: list[tuple[str, str]]) -> float:
        seconds = self._rng.choice([1.0, 4.0, 8.0]) * self._rng.random()
        network = self._world.network
        added = [pair for pair in pairs if pair not in network.cuts]
        network.cuts.update(added)
        self._later(seconds, lambda: network.cuts.difference_update(added))
        return seconds

    def _two(self) -> tuple[str, str]:
        one, two = self._rng.sample(sorted(self._world.machines), 2)
        return f"b{one}", f"b{two}"

    def _cut_pair(self) -> str:
        one, two = self._two()
        return f"partition: {one} and {two} for {self._cut([(one, two), (two, one)]):.2f} s"

    def _cut_one_way(self) -> str:
        one, two = self._two()
        return f"one-way partition: {one} to {two} for {self._cut([(one, two)]):.2f} s"

    def _isolate(self) -> str:
        """From the other brokers; clients and SQL reach it, or do not."""
        rng = self._rng
        one = self._two()[0]
        others = [f"b{number}" for number in self._world.machines if f"b{number}" != one]
        if rng.random() < 0.3:
            others.append(SQL)
        if rng.random() < 0.3:
            others += [client.name for client in self._world.clients]
        pairs = [(one, other) for other in others]
        if rng.random() < 0.7:
            pairs += [(other, one) for other in others]
        return f"isolation: {one} from {others} for {self._cut(pairs):.2f} s"

    def _cut_sql(self) -> str:
        one = self._two()[0]
        both = [(one, SQL), (SQL, one)]
        pairs = self._rng.choice([both, both[:1], both[1:]])
        return f"SQL out of reach: {pairs} for {self._cut(pairs):.2f} s"

    def _sql_down(self) -> str | None:
        sql = self._world.sql
        if sql.is_down:
            return None
        sql.is_down = True
        seconds = 5.0 * self._rng.random()
        self._later(seconds, lambda: setattr(sql, "is_down", False))
        return f"SQL down: for {seconds:.2f} s"

    def _set_for_a_while(self, target: object, name: str, value: object, usual: object, longest_s: float) -> float:
        setattr(target, name, value)
        seconds = longest_s * self._rng.random()
        self._later(seconds, lambda: setattr(target, name, usual))
        return seconds

    def _sql_loses_answers(self) -> str:
        seconds = self._set_for_a_while(self._world.sql, "loses_answers", 0.5, 0.0, 4.0)
        return f"lost answers of COMMIT: for {seconds:.2f} s"

    def _sql_commits_late(self) -> str:
        seconds = self._set_for_a_while(self._world.sql, "commits_late", 0.4, 0.0, 4.0)
        return f"late COMMIT: for {seconds:.2f} s"

    def _sql_slow(self) -> str:
        return f"slow SQL: for {self._set_for_a_while(self._world.sql, 'slow_s', 1.0, 0.0, 4.0):.2f} s"

    def _slow_links(self) -> str:
        network = self._world.network
        one, two = self._two()
        network.slow[one, two] = network.slow[two, one] = 0.6
        self._later(
            5.0 * self._rng.random(),
            network.slow.clear,
        )
        return f"slow link: {one} and {two}"

    def _store_fails(self) -> str:
        world = self._world
        if self._rng.random() < 0.3:
            one = self._two()[0]
            return f"store out of reach: {one} for {self._cut([(one, STORE), (STORE, one)]):.2f} s"
        name = self._rng.choice(["refuses", "loses_answers"])
        return f"store {name}: for {self._set_for_a_while(world.bucket, name, 0.6, 0.0, 6.0):.2f} s"

    def _disk_full(self) -> str | None:
        machine = self._victim()
        if machine is None or machine.disk.is_full:
            return None
        seconds = self._set_for_a_while(machine.disk, "is_full", True, False, 3.0)
        return f"disk full: {machine.name} for {seconds:.2f} s"

    def _disk_fails(self) -> str | None:
        """EIO: whoever sees to the machine replaces what is broken and starts the process anew.

        What a failed fsync has left clean is dropped then, or some time later, or never.
        """
        machine = self._victim()
        if machine is None or not self._may_lose(machine):
            return None
        operation = self._rng.choice(["sync", "write", "read"])
        machine.disk.broken.add(operation)
        drops = self._rng.choice(["now", "later", "never"])
        met = self._met_io_errors
        met.add(machine.name)

        def repair() -> None:
            machine.disk.broken.clear()
            met.discard(machine.name)
            if machine.is_up:
                machine.kill()
            if operation == "sync" and drops == "now" and machine.disk.drop_dirty_pages():
                self._world.checker.lossy.add(machine.name)
            self._start_soon(machine)

        seconds = 4.0 * self._rng.random()
        self._later(seconds, repair)
        if operation == "sync" and drops == "later":
            self._later(seconds + 4.0 * self._rng.random(), lambda: self._drop_pages(machine))
        return f"disk fails: {machine.name} {operation}"

    def _drop_pages(self, machine: Machine) -> None:
        """The machine needs memory: it kills the process, and gives up what it takes for clean."""
        if not machine.disk.has_unwritten_pages or not self._may_lose(machine):
            return
        if machine.is_up:
            machine.kill()
        self._world.trace("nemesis", f"pages are dropped: {machine.name}")
        machine.disk.drop_dirty_pages()
        self._world.checker.lossy.add(machine.name)
        self._start_soon(machine)

    def _start_soon(self, machine: Machine) -> None:
        self._world.loop.call_later(
            0.1, lambda: None if machine.is_up else machine.start(), context=self._world.context
        )

    def _slow_disk(self) -> str | None:
        machine = self._victim()
        if machine is None:
            return None
        assert machine.process is not None
        number, slow = machine.process.number, self._world.loop.slow_threads
        slow[number] = 0.8
        self._later(3.0 * self._rng.random(), lambda: slow.pop(number, None))
        return f"slow disk: {machine.name}"

    def _clock_jumps(self) -> str:
        rng, world = self._rng, self._world
        jump_ms = int((rng.random() - 0.5) * rng.choice([2_000, 60_000, HOUR_MS]))
        if rng.random() < 0.3:
            world.sql.clock_error_ms += jump_ms
            return f"clock jumps: SQL by {jump_ms} ms"
        machine = world.machines[rng.choice(sorted(world.machines))]
        machine.clock.error_ms = jump_ms
        return f"clock jumps: {machine.name} by {jump_ms} ms"

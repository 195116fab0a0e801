"""The faults of a soak: each kind begins on one broker, lasts, and ends.

Owns the list of kinds and which of them may meet in one round. What is drawn comes from a seeded generator; when it
strikes, the machine decides.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError

from tests.cluster.links import CLIENTS, LinkFault
from tests.cluster.network import HELD, HELD_ANSWERS, HELD_REQUESTS, SQL, broker_name
from tests.cluster.object_store import STORE_FAULTS
from tests.cluster.processes import ClusterProcesses
from tiered.testing.faulty_s3 import S3FaultKind

Undo = Callable[[], None]
Begin = Callable[[ClusterProcesses, random.Random, int], Undo]
START_S = 90.0
"""SQL is away for a minute at the most."""
EVERYTHING = "everything"
"""What a fault touches that is alone in its round."""
SMALL_DISK_OF = 3
FREE_BYTES = (0, 100_000, 600_000)
FREE_FILES = (0, 1, 3, 10)
OLDER_BY_S = 1.0
"""Long enough for every broker to come back to the start that the older state lacks."""
REFUSED_S = 30.0
"""Until every broker refuses a database that has lost what one of them has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind. `touches` is what no other fault of the same round may touch too: `process`, `disk` …"""

    name: str
    begin: Begin
    touches: str
    seconds: tuple[float, float] = (3.0, 12.0)
    weight: int = 2
    broker_id: int | None = None
    """The only broker that it can hit."""


def _start_again(cluster: ClusterProcesses, broker_id: int) -> None:
    """A start may fail while SQL is away or the broker is cut off: then it is tried again, as a supervisor would."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            cluster.start(broker_id)
            return
        except AssertionError:
            time.sleep(1.0)
    raise AssertionError(f"broker {broker_id} does not start\n{cluster.brokers[broker_id].log()[-4000:]}")


def _kill(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.kill(broker_id)
    return lambda: _start_again(cluster, broker_id)


def _restart(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    _stop(cluster, broker_id)
    return lambda: _start_again(cluster, broker_id)


def _stop(cluster: ClusterProcesses, broker_id: int) -> None:
    with suppress(Exception):  # What a shutdown under faults takes too long for, kill -9 does.
        cluster.stop(broker_id)
    if cluster.runs(broker_id):
        cluster.kill(broker_id)


def _wipe(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    """One copy of everything is lost. Only where all others are in sync: else no promise covers it."""
    try:
        in_sync = cluster.is_in_sync()
    except OperationalError:
        in_sync = False  # A longer fault has SQL away.
    cluster.kill(broker_id)
    if in_sync:
        cluster.wipe(broker_id)
    return lambda: _start_again(cluster, broker_id)


def _pause(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.pause(broker_id)
    return lambda: cluster.resume(broker_id)


def _fill_disk(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.fill_disk(broker_id)
    return lambda: cluster.free_disk(broker_id)


def _fill_small_disk(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.fill_small_disk(chance.choice(FREE_BYTES))
    return cluster.empty_small_disk


def _take_files(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.take_files(broker_id, chance.choice(FREE_FILES))
    return lambda: cluster.give_files(broker_id)


def _jump_clock(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.clocks[broker_id].set_offset_s(chance.choice((-86_400, -3_600, -5, 5, 3_600, 86_400)))
    return lambda: cluster.clocks[broker_id].set_offset_s(0)


def _isolated(*, clients: bool, fault: LinkFault) -> Begin:
    def begin(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
        cluster.network.isolate(broker_id, cluster.ids, fault, clients=clients)
        return lambda: _mend_brokers(cluster, broker_id)

    return begin


def _cut_pair(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    other = chance.choice([each for each in cluster.ids if each != broker_id])
    cluster.network.cut_between(broker_id, other)
    return lambda: _mend_brokers(cluster, broker_id)


def _one_way(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    """Either nobody hears this broker, or it hears nobody; what was held may arrive late."""
    name = broker_name(broker_id)
    late = chance.random() < 0.5
    requests, answers = (
        LinkFault(hold_requests=True, deliver_late=late),
        LinkFault(hold_answers=True, deliver_late=late),
    )
    mine, theirs = (requests, answers) if chance.random() < 0.5 else (answers, requests)
    for other in cluster.ids:
        if other != broker_id:
            cluster.network.fault(name, broker_name(other), mine)
            cluster.network.fault(broker_name(other), name, theirs)
    return lambda: _mend_brokers(cluster, broker_id)


def _mend_brokers(cluster: ClusterProcesses, broker_id: int) -> None:
    name = broker_name(broker_id)
    cluster.network.mend(CLIENTS, name)
    for other in cluster.ids:
        if other != broker_id:
            cluster.network.mend(name, broker_name(other))
            cluster.network.mend(broker_name(other), name)


def _bad_links(draw: Callable[[random.Random], LinkFault]) -> Begin:
    """One fault on every link to and from a broker, its clients' too."""

    def begin(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
        fault, name = draw(chance), broker_name(broker_id)
        cluster.network.fault(CLIENTS, name, fault)
        for other in cluster.ids:
            if other != broker_id:
                cluster.network.fault(name, broker_name(other), fault)
                cluster.network.fault(broker_name(other), name, fault)
        return lambda: _mend_brokers(cluster, broker_id)

    return begin


def _sql_link(draw: Callable[[random.Random], LinkFault]) -> Begin:
    def begin(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
        cluster.network.fault(broker_name(broker_id), SQL, draw(chance))
        return lambda: cluster.network.mend(broker_name(broker_id), SQL)

    return begin


def _sql_stopped(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.stop_sql()
    return cluster.start_sql


def _sql_frozen(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.postgres.freeze_all()
    return cluster.postgres.thaw_all


def _sql_promoted(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    """An older state of PostgreSQL takes over. If nobody has seen what it lacks, brokers go on with it; else all must
    refuse it, and go on when the newest one is there again."""
    if not cluster.promote_older_sql(OLDER_BY_S):
        return lambda: None

    def bring_back() -> None:
        try:
            cluster.wait_until(cluster.all_refuse_sql, "all refuse a database that lost commits", timeout_s=REFUSED_S)
        finally:
            for number in cluster.ids:
                _stop(cluster, number)
            cluster.bring_back_newest_sql()
            for number in cluster.ids:
                _start_again(cluster, number)

    return bring_back


def _expire_session(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.expire_session()
    return cluster.renew_session


def _refuse_deletes(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    cluster.store.refuse_deletes()
    return cluster.store.heal


def _bad_store(kinds: Sequence[S3FaultKind], probability: float, seconds: float = 0.0) -> Begin:
    def begin(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
        for each in cluster.ids:
            cluster.store.misbehave(
                each, seed=chance.randrange(1 << 30), probability=probability, kinds=kinds, seconds=seconds
            )
        return cluster.store.heal

    return begin


def _out_of_reach(cluster: ClusterProcesses, chance: random.Random, broker_id: int) -> Undo:
    """One broker does not reach the store: after 40 s the others lead."""
    kind = chance.choice((S3FaultKind.RESET, S3FaultKind.ACCESS_DENIED, S3FaultKind.SESSION_EXPIRED))
    cluster.store.misbehave(broker_id, seed=chance.randrange(1 << 30), probability=1.0, kinds=(kind,))
    return cluster.store.heal


def _drawn(*faults: LinkFault) -> Callable[[random.Random], LinkFault]:
    return lambda chance: chance.choice(faults)


FAULTS = (
    Fault(name="kill -9", begin=_kill, touches="process", seconds=(0.5, 8.0), weight=5),
    Fault(name="controlled restart", begin=_restart, touches="process", seconds=(0.5, 4.0)),
    Fault(name="disk wiped", begin=_wipe, touches="process", seconds=(1.0, 5.0), weight=1),
    Fault(name="SIGSTOP", begin=_pause, touches="process", seconds=(1.0, 15.0), weight=4),
    Fault(name="disk full", begin=_fill_disk, touches="process", seconds=(2.0, 8.0)),
    Fault(
        name="small disk full",
        begin=_fill_small_disk,
        touches="process",
        seconds=(4.0, 15.0),
        broker_id=SMALL_DISK_OF,
    ),
    Fault(name="out of files", begin=_take_files, touches="process"),
    Fault(name="clock jump", begin=_jump_clock, touches="clock"),
    Fault(name="partition", begin=_isolated(clients=True, fault=HELD), touches="links", weight=3),
    Fault(name="partition, clients spared", begin=_isolated(clients=False, fault=HELD), touches="links", weight=3),
    Fault(name="pair cut", begin=_cut_pair, touches="links"),
    Fault(name="one-way partition", begin=_one_way, touches="links", weight=3),
    Fault(
        name="slow links",
        begin=_bad_links(_drawn(LinkFault(delay_ms=30), LinkFault(delay_ms=200), LinkFault(bytes_per_second=30_000))),
        touches="links",
    ),
    Fault(
        name="resets and truncation",
        begin=_bad_links(_drawn(LinkFault(reset_probability=0.02), LinkFault(cut_probability=0.02))),
        touches="links",
    ),
    Fault(
        name="cut off from SQL",
        begin=_sql_link(_drawn(HELD, HELD_REQUESTS, HELD_ANSWERS, LinkFault(hold_answers=True, deliver_late=False))),
        touches="sql",
        weight=3,
    ),
    Fault(
        name="slow or torn SQL",
        begin=_sql_link(_drawn(LinkFault(delay_ms=100), LinkFault(reset_probability=0.05))),
        touches="sql",
    ),
    Fault(name="SQL killed", begin=_sql_stopped, touches="sql", seconds=(1.0, 10.0)),
    Fault(name="SQL frozen", begin=_sql_frozen, touches="sql", seconds=(1.0, 10.0)),
    Fault(name="SQL promoted without its last second", begin=_sql_promoted, touches=EVERYTHING, weight=1),
    Fault(name="S3 fails", begin=_bad_store(STORE_FAULTS, 0.5), touches="s3"),
    Fault(name="S3 is away", begin=_bad_store((S3FaultKind.SLOW_DOWN,), 1.0), touches="s3"),
    Fault(name="S3 is slow", begin=_bad_store((S3FaultKind.DELAY,), 0.7, seconds=1.5), touches="s3"),
    Fault(name="session expired", begin=_expire_session, touches="s3"),
    Fault(name="deletes refused", begin=_refuse_deletes, touches="s3"),
)

LONG_FAULTS = (
    Fault(name="SIGSTOP for a minute", begin=_pause, touches="process", seconds=(60.0, 60.0), weight=1),
    Fault(name="SQL away for a minute", begin=_sql_stopped, touches="sql", seconds=(60.0, 60.0), weight=1),
    Fault(name="S3 away from one broker", begin=_out_of_reach, touches="s3", seconds=(60.0, 60.0), weight=2),
)
"""For runs that have the time: their rounds last longer than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault of a round: when it begins after the round's start, how long it lasts, whom it hits first."""

    fault: Fault
    broker_id: int
    after_s: float
    seconds: float

    def words(self) -> str:
        return f"{self.fault.name} (broker {self.broker_id}, at {self.after_s:.1f} s for {self.seconds:.1f} s)"


def draw_round(
    chance: random.Random, broker_ids: Sequence[int], round_s: float, faults: Sequence[Fault] = FAULTS
) -> list[Strike]:
    """What one round brings: nothing in a quarter of them, else one to three faults that do not touch the same."""
    if chance.random() < 0.25:
        return []
    strikes: list[Strike] = []
    touched: set[str] = set()
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        fault = chance.choices(faults, [each.weight for each in faults])[0]
        if fault.touches in touched or EVERYTHING in touched or (touched and fault.touches == EVERYTHING):
            continue
        touched.add(fault.touches)
        seconds = chance.uniform(*fault.seconds)
        latest_s = max(round_s * 0.6 - seconds, 0.5)
        strikes.append(
            Strike(
                fault=fault,
                broker_id=fault.broker_id or chance.choice(broker_ids),
                after_s=chance.uniform(0.0, latest_s),
                seconds=seconds,
            )
        )
    return strikes


class Nemesis:
    """Carries rounds out, each fault in a thread of its own, and counts them."""

    def __init__(self, cluster: ClusterProcesses, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        """Faults that could not be ended: a broker that does not start any more."""
        self._cluster = cluster
        self._chance = chance

    def carry_out(self, strikes: Sequence[Strike]) -> None:
        """Returns when every fault of the round is over."""
        threads = [threading.Thread(target=self._strike, args=(strike,), daemon=True) for strike in strikes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _strike(self, strike: Strike) -> None:
        time.sleep(strike.after_s)
        chance = random.Random(self._chance.random())
        try:
            undo = strike.fault.begin(self._cluster, chance, strike.broker_id)
            self.counts[strike.fault.name] += 1
            time.sleep(strike.seconds)
            undo()
        except Exception as error:
            self.failures.append(f"{strike.words()}: {error!r}"[:3000])

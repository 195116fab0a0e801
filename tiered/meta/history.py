"""Whether the database still has what this broker has seen in it.

Owns the rows of `database_start`, and the judgement. A database goes back where a standby that was behind is promoted,
or an older copy is restored: it gives out numbers and ids again that somebody has, and goes on as if nothing had been.
Its change number alone shows that only until others have made as many changes. But it can go back only by starting
anew: so whoever meets a start of the database first writes down the number of changes with which it began, before
anything else of it is used, and a broker that had seen more knows that the rest is gone, however late it looks
(docs/adr/0029). Must never let a call run on a database that went back.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert, select, update

from tiered.errors import CoordinatorLoading, MetadataWentBack
from tiered.ids import DataFolderOwner
from tiered.meta import cluster
from tiered.meta.clock import now_ms
from tiered.meta.tables import ONLY_ROW, broker, database_start
from tiered.meta.tables import cluster as cluster_table

NOT_YET = 0
"""In the place of a heartbeat's time: none since the database started. Who beats has compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last change of a cluster that a broker has seen, and the start of the database in which it was."""

    cluster_id: str
    start: int
    server: str
    change_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The present start, with the changes of before it, and the fewest with which one began that is later than what the
    broker knew; or why the database must not be used."""

    began: Seen | None = None
    lowest_change_number: int = 0
    reason: str | None = None
    compared: Seen | None = None
    """What the broker knew."""


class History:
    """Of one process. Everything may be called from any thread; `on_went_back` is called once, from one of them."""

    def __init__(self, seen: Seen | None, *, broker_id: int, on_went_back: Callable[[str], None]) -> None:
        self._broker_id = broker_id
        self._on_went_back = on_went_back
        self._lock = threading.Lock()
        self._known = seen
        self._entered: Seen | None = None
        """The present start, with the number of changes with which it began. None before this process has met it."""
        self._before: Seen | None = None
        """The start that was entered before it."""
        self._went_back: str | None = None
        self._is_untold = False
        """This broker alone knows that: the database is to say it to all others."""

    @property
    def seen(self) -> Seen | None:
        """What to remember for the next process."""
        return self._known

    def require(self) -> None:
        """Returns while the database is what it was, as far as anybody knows. Raises MetadataWentBack."""
        if self._went_back is not None:
            raise MetadataWentBack(self._went_back)

    def has_entered(self, server: str) -> bool:
        """Whether the server is known; else `look` and `take` come before its other calls. Raises MetadataWentBack."""
        if self._is_untold:
            return False
        self.require()
        return self._entered is not None and self._entered.server == server

    def look(self, conn: Connection, server: str) -> Look | None:
        """What the database says of this start, which is written down if nobody has. `take` it once the transaction was
        committed. None for a database of no cluster, or of another one than this broker's: a registration refuses it,
        and it is left as it is."""
        row, known = cluster.find(conn), self._known
        if row is None:
            return None
        if known is not None and known.cluster_id != row.cluster_id:
            owner = DataFolderOwner(self._broker_id, known.cluster_id)
            if all(disk.owner != owner for disk in row.kept_disks):
                return None
            known = None  # A restore took this disk along: its cluster goes on in a database of its own.
        if row.went_back is not None:
            return Look(reason=row.went_back, compared=known)
        began = _written_down(conn, row.cluster_id, server)
        later = [] if known is None else _starts(conn, known.cluster_id, since=known.start)
        if known is not None and (not later or later[0].server != known.server or later[0].start != known.start):
            reason = self._words(known.change_number, None)
        else:
            lowest = min((each.change_number for each in later[1:]), default=cluster.load(conn).change_number)
            if known is None or known.change_number <= lowest:
                return Look(began=began, lowest_change_number=lowest, compared=known)
            reason = self._words(known.change_number, lowest)
        conn.execute(update(cluster_table).where(cluster_table.c.id == ONLY_ROW).values(went_back=reason))
        return Look(reason=reason, compared=known)

    def take(self, look: Look | None) -> None:
        """From here on calls go to that start. Raises MetadataWentBack where it has less than was seen."""
        if look is None:
            self.require()
            return
        reason, began = look.reason, look.began
        with self._lock:
            known = self._known
            if look.compared is known:
                self._is_untold = False
            if known is not None and began is not None and known.cluster_id != began.cluster_id:
                known = None
            lowest, is_another = look.lowest_change_number, began is not None and known and known.start != began.start
            if known is not None and is_another and known.change_number > lowest:
                # The last answers of the start before came while this one was looked at.
                reason, self._is_untold = self._words(known.change_number, lowest), True
            if reason is None and began is not None:
                self._before, self._entered, self._known = self._entered, began, known or began
        if reason is not None:
            self.refuse(reason)
        self.require()

    def saw(self, server: str, change_number: int) -> None:
        """A call to this server was committed that took or read the number."""
        with self._lock:
            known, entered = self._known, self._entered
            if known is None or entered is None:
                return
            if entered.server == server:
                if change_number <= known.change_number:
                    return
                # Until there is a change beside that which wrote the start down, nothing rests on the start. A broker
                # may be the first to meet a standby that others then refuse, and must not miss that start afterwards.
                if change_number > entered.change_number + 1:
                    self._known = replace(entered, change_number=change_number)
                return
            # The answer of a server that another one has replaced meanwhile.
            if change_number > entered.change_number and self._before is not None and self._before.server == server:
                self._known, self._is_untold = replace(self._before, change_number=change_number), True
        if change_number > entered.change_number:
            self.refuse(self._words(change_number, entered.change_number))

    def refuse(self, reason: str) -> None:
        """No call is made any more: this broker, or another one, knows that changes are gone."""
        with self._lock:
            if self._went_back is not None:
                return
            self._went_back = reason
        self._on_went_back(reason)

    def _words(self, seen: int, began: int | None) -> str:
        has = "has another past" if began is None else f"went on from change {began}"
        return (
            f"the metadata store has lost commits: broker {self._broker_id} has seen change {seen}, and the database "
            f"{has} (a standby that was behind was promoted, or an older copy was restored). Ids and offsets would be "
            "given out twice, so no broker leads or gives out ids on it. Stop all brokers, bring back a database that "
            "has everything (the newest standby or backup), and start them again; where there is none, restore the "
            "cluster from its object store and disks (docs/operations.md, When the database went back)"
        )


def require_compared(conn: Connection) -> None:
    """Returns when every broker in service has compared this start of the database with what it had seen. Who does not
    live is put out of service soon. Raises CoordinatorLoading."""
    found = conn.execute(_SILENT).scalar()
    if found is not None:
        raise CoordinatorLoading(
            f"the database was started anew, and broker {found} has not compared it with what it had seen; ask again"
        )


_SILENT = select(broker.c.broker_id).where(broker.c.fenced.is_(False), broker.c.heartbeat_at_ms == NOT_YET).limit(1)


def _written_down(conn: Connection, cluster_id: str, server: str) -> Seen:
    """The last start in the database, which is this server's, with the changes of before it."""
    last = _last(conn, cluster_id)
    if last is None or last.server != server:
        number = cluster.take_number(conn)  # The lock under which only one writes it down, before any other change.
        last = _last(conn, cluster_id)
        if last is None or last.server != server:
            last = Seen(
                cluster_id=cluster_id,
                start=1 if last is None else last.start + 1,
                server=server,
                change_number=number - 1,
            )
            conn.execute(
                insert(database_start).values(
                    number=last.start, server=server, change_number=last.change_number, began_at_ms=now_ms(conn)
                )
            )
            conn.execute(update(broker).values(heartbeat_at_ms=NOT_YET))
    return last


def _last(conn: Connection, cluster_id: str) -> Seen | None:
    return next(iter(_starts(conn, cluster_id, since=None)), None)


def _starts(conn: Connection, cluster_id: str, *, since: int | None) -> list[Seen]:
    """The last one, or all from one on, oldest first."""
    columns = database_start.c
    query = select(columns.number, columns.server, columns.change_number)
    if since is None:
        query = query.order_by(columns.number.desc()).limit(1)
    else:
        query = query.where(columns.number >= since).order_by(columns.number)
    return [
        Seen(cluster_id=cluster_id, start=row.number, server=row.server, change_number=row.change_number)
        for row in conn.execute(query).all()
    ]

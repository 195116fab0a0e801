"""`make attack`: what each API and route costs the others when hostile clients ask for it as fast as they can.

A broker with very many groups, transactional ids, topics and rules. A producer, a group and a transactional producer
work at a steady pace, first undisturbed; then mallory, who has no rights, and alice, who has some, ask for one thing at
a time over one connection and over fifty. It ends with 1 where somebody waited for longer than the bounds below.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from tests.attack.hostile import ALICE, MALLORY, Attack, Attackers, as_json
from tests.attack.watch import TOPIC, Took, Watch, at
from tests.broker_process import BrokerProcess
from tests.components.rights_table import ROWS, Row
from tests.support.http_routes import body_of, path_of
from tiered.meta import security, tables
from tiered.meta.engine import Database
from tiered.meta.security import AclRow
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.server.http.door.rights import RIGHTS
from tiered.wire import messages

NAME = "alice-has-it"
SLOTS = 50
PRODUCE_P99_MS, PRODUCE_MAX_MS = 10.0, 50.0
TIMES_QUIET = 5.0
"""As long may transactions and commits take at the 99th percentile."""
LONGER_S = 10.0
"""An attack that was beyond a bound is made once more for so long, and judged by all that was measured of it: a second
has 20 transactions, of which the slowest is the 99th percentile."""
MORE_RSS_MIB = 200.0
QUIET_S = 30.0
HUNG_UP_S = 0.5
"""All connections hang up at the end of an attack: what it costs to let go of their requests is measured, too."""
AFTER_S, AFTER_SHARE = 60.0, 1.2
"""A minute after the last attack the broker has as much memory again as before the first, within a fifth."""
NICENESS = 15
ROWS_AT_ONCE = 5_000
NOT_WIDENED = (0, 1)
"""Produce and Fetch have codecs of their own, and tests for very many batches and partitions."""
CREATE_TOPICS, MOST_NEW_TOPICS = 19, 10_000
"""More are refused at once. They are only validated: there would be as many topics as there may be
(`tiered.max.topics`), and another broker for the attacks after it."""
MOST_BYTES = 8_000_000
"""Of a request: the broker takes 8 MiB (tiered.request.max.bytes)."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """What was measured before anybody attacked."""

    commit_p99_ms: float
    transaction_p99_ms: float
    rss_mib: float


def main(words: Sequence[str]) -> int:
    """0 when nobody was kept waiting."""
    options = _options(words)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = _database(stack, folder) if options.postgres else f"sqlite:///{folder}/meta.db"
        broker = BrokerProcess(
            folder / "data", "--meta", url, settings={"tiered.authorizer": "acl", "super.users": "User:nobody"}
        )
        _fill(broker, url, options)
        broker.start()
        stack.callback(broker.ensure_stopped)
        attackers = Attackers(options.nice)
        stack.callback(attackers.close)
        watch = stack.enter_context(Watch(broker.kafka_port))
        return _attack_all(broker, watch, attackers, options)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each attack")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--nice", type=int, default=NICENESS, help="of the attackers' process; 0 as everybody else")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="attacks whose name has them")
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--transactions", type=int, default=300_000)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=100_000, help="in each list of a request")
    parser.add_argument("--postgres", action="store_true", help="in place of SQLite")
    return parser.parse_args(words)


def _database(stack: ExitStack, folder: Path) -> str:
    from tests.postgres import PostgresServer

    folder.chmod(0o755)  # As root it runs as another user, who has to come in.
    server = PostgresServer(folder / "postgres", durable=True)
    stack.callback(server.stop)
    return server.url()


# The stage


def _fill(broker: BrokerProcess, url: str, options: argparse.Namespace) -> None:
    """The broker has founded its cluster once; then rows are put into SQL that clients would need hours for."""
    broker.start()
    broker.ensure_stopped()
    database = Database.open(url, deadline_ms=120_000)
    now_ms = int(time.time() * 1000)
    everything = [_rule(kind, "*", "127.0.0.1") for kind in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")]
    hers = [_rule(kind, "alice-", ALICE, "PREFIXED") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")]
    others = [_rule("TOPIC", f"topic-of-{number}", "*", principal=f"User:{number}") for number in range(options.rules)]
    try:
        database.run_sync(lambda conn: security.create_acls(conn, [*everything, *hers, *others], now_ms=now_ms))
        for table, rows in (
            (tables.consumer_group, _groups(options.groups, now_ms)),
            (tables.transactional_producer, _transactions(options.transactions, now_ms)),
        ):
            while some := [row for row, _ in zip(rows, range(ROWS_AT_ONCE), strict=False)]:
                database.run_sync(lambda conn, table=table, some=some: conn.execute(insert(table), some))  # type: ignore[misc]
    finally:
        database.close_sync()
    broker.start()
    _make_topics(broker, options.topics)
    broker.stop()


def _rule(kind: str, name: str, host: str, pattern: str = "LITERAL", principal: str = "User:ANONYMOUS") -> AclRow:
    if kind == "CLUSTER":
        name = "kafka-cluster"
    return AclRow(
        resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal, host=host, operation="ALL",
        permission="ALLOW",
    )  # fmt: skip


def _groups(count: int, now_ms: int) -> Iterator[dict[str, object]]:
    for number in range(count):
        name = f"group-{number:07}"
        yield {
            "group_id": name, "slot": coordinator_slot(name, SLOTS), "kind": "classic", "protocol_type": "consumer",
            "generation": 1, "empty_since_ms": now_ms, "slot_epoch": 0, "commit_number": 0, "members": None,
        }  # fmt: skip


def _transactions(count: int, now_ms: int) -> Iterator[dict[str, object]]:
    for number in range(count):
        name = f"transaction-{number:07}"
        yield {
            "transactional_id": name, "slot": coordinator_slot(name, SLOTS), "producer_id": 10**9 + number,
            "producer_epoch": 0, "last_producer_epoch": -1, "previous_producer_id": -1, "next_producer_id": -1,
            "timeout_ms": 60_000, "state": "Empty", "protocol": 2, "started_at_ms": None, "changed_at_ms": now_ms,
            "coordinator_epoch": 0,
        }  # fmt: skip


def _make_topics(broker: BrokerProcess, count: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    names = [TOPIC, NAME, *(f"topic-{number:05}" for number in range(count))]
    for first in range(0, len(names), 500):
        made = admin.create_topics([NewTopic(name, 1) for name in names[first : first + 500]], operation_timeout=60)
        for created in made.values():
            created.result(60)


# The attacks


def _attacks(cluster_id: str, names: int) -> Iterator[Attack]:
    for row in ROWS:
        yield Attack(f"API {row}", row.key, row.version, row.body(NAME))
        body = _of_many(row, names) if row.key not in NOT_WIDENED else b""
        if body:
            yield Attack(f"API {row} of many names", row.key, row.version, body)
    for route in sorted(RIGHTS):
        method, template = route.split(" ", 1)
        if not template.endswith("/tail"):  # It has no end.
            yield Attack(route, method=method, path=path_of(cluster_id, template, NAME), body=as_json(body_of(route)))


def _of_many(row: Row, names: int) -> bytes:
    """The body of the row's request with so many different names in each of its lists, or as many as a request may
    have; nothing where it has no list."""

    def request() -> Any:
        decoded = messages.request_decoder(row.key, row.version)(row.body(NAME), 0)
        if row.key == CREATE_TOPICS:
            decoded.validate_only = True
        return decoded

    if row.key == CREATE_TOPICS:
        names = min(names, MOST_NEW_TOPICS)
    few, more = (_widened(request(), count) for count in (1, 101))
    each_bytes = (len(more) - len(few)) / 100
    return _widened(request(), min(names, int(MOST_BYTES / each_bytes))) if each_bytes else b""


def _widened(request: Any, count: int) -> bytes:
    for field in type(request).__slots__:
        value = getattr(request, field)
        if isinstance(value, tuple) and value:
            setattr(request, field, tuple(_numbered(value[0], number) for number in range(count)))
    return bytes(messages.encode(request))


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, str):
        return f"{value}-{number}"
    if not hasattr(type(value), "__slots__"):
        return value
    value = copy(value)
    name = next((field for field in type(value).__slots__ if isinstance(getattr(value, field), str)), None)
    if name is not None:
        setattr(value, name, f"{getattr(value, name)}-{number}")
    return value


def _attack_all(broker: BrokerProcess, watch: Watch, attackers: Attackers, options: argparse.Namespace) -> int:
    time.sleep(3.0)
    watch.took = Took()
    time.sleep(QUIET_S)
    took = watch.took
    quiet = Quiet(at(took.commit, 0.99), at(took.transaction, 0.99), _rss_mib(broker))
    print(f"{'quiet':<78} {_line(took)}  rss {quiet.rss_mib:.0f} MiB", flush=True)
    cluster_id = _cluster_id(broker)
    worst_rss_mib, failed = 0.0, 0
    for attack in _attacks(cluster_id, options.names):
        if options.only and not any(words in attack.name for words in options.only):
            continue
        for source, who in ((MALLORY, "mallory"), (ALICE, "alice")):
            for connections in options.connections:
                took, wrong = Took(), ""
                port = broker.http_port if attack.method else broker.kafka_port
                name = f"{attack.name}, {who}, {connections}"
                for seconds in (options.seconds, LONGER_S):
                    watch.took = took
                    count = attackers.attack(attack, port, source, connections=connections, seconds=seconds)
                    rss_mib = _rss_mib(broker)
                    worst_rss_mib = max(worst_rss_mib, rss_mib)
                    time.sleep(HUNG_UP_S)
                    watch.took = Took()
                    wrong = _wrong(took, quiet, rss_mib)
                    print(f"{name:<78} {_line(took)}  rss {rss_mib:.0f} MiB, {count} answers{wrong}", flush=True)
                    if not wrong:
                        break
                failed += bool(wrong)
    time.sleep(AFTER_S)
    after_mib = _rss_mib(broker)
    print(f"rss {quiet.rss_mib:.0f} MiB before, {worst_rss_mib:.0f} at the most, {after_mib:.0f} a minute after")
    failed += after_mib > AFTER_SHARE * quiet.rss_mib
    for error in watch.errors:
        print(f"the others met an error: {error}")
    return 1 if failed or watch.errors else 0


def _line(took: Took) -> str:
    return ", ".join(
        f"{kind} p99 {at(values, 0.99):.1f} max {at(values, 1.0):.1f}"
        for kind, values in (("produce", took.produce), ("commit", took.commit), ("transaction", took.transaction))
    )


def _wrong(took: Took, quiet: Quiet, rss_mib: float) -> str:
    wrong = [
        words
        for words, is_wrong in (
            ("produce", at(took.produce, 0.99) > PRODUCE_P99_MS or at(took.produce, 1.0) > PRODUCE_MAX_MS),
            ("commit", at(took.commit, 0.99) > TIMES_QUIET * quiet.commit_p99_ms),
            ("transaction", at(took.transaction, 0.99) > TIMES_QUIET * quiet.transaction_p99_ms),
            ("rss", rss_mib > quiet.rss_mib + MORE_RSS_MIB),
        )
        if is_wrong
    ]
    return f"  WRONG: {', '.join(wrong)}" if wrong else ""


def _rss_mib(broker: BrokerProcess) -> float:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _cluster_id(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.http}/v3/clusters") as answer:
        return str(json.load(answer)["data"][0]["cluster_id"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

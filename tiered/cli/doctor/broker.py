"""The area `broker`: those that run, or should: are they ready, do clients reach them, does a record come back.

Asks over both doors. Creates a topic only with `--write`, and deletes it in the end.
"""

import asyncio
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tiered.cli.client.http_api import HttpApi
from tiered.cli.client.wrong_port import wanted_login
from tiered.cli.doctor.findings import CheckResult, Situation, fail, ok, warn
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.output import counted, in_bytes
from tiered.config.addresses import host_and_port
from tiered.config.tls import ListenerTls
from tiered.errors import Corrupt, InvalidConfig, Retriable, TieredError
from tiered.formats.record_batch import Record, encode_batch, exact_batches, records
from tiered.peer import Cluster, ClusterMetadata, ConnectionLost, Peer, parse_bootstrap
from tiered.peer.broker_admin import DescribedBroker, DescribedCluster, describe_cluster
from tiered.peer.security import PeerSecurity
from tiered.peer.topic_admin import create_topics, delete_topics
from tiered.runtime import SystemClock, new_uuid
from tiered.tls import client_context
from tiered.wire.error_codes import reason

TIMEOUT_MS = 5_000
HELD_BACK_MS = 60_000
"""A transaction that keeps readers waiting for longer is worth a look."""
MAX_BODY_BYTES = 1 << 20


def broker(situation: Situation) -> Iterator[CheckResult]:
    """The broker at --bootstrap, which must run; else the one at --kafka, if it runs."""
    options = situation.options
    asked_for = situation.bootstrap is not None
    bootstrap = situation.bootstrap or f"{_reachable(options.listeners[0].host)}:{options.listeners[0].port}"
    if not asked_for and options.listeners[0].port == 0:
        yield ok("kafka", "--kafka takes any free port: name a running broker with --bootstrap", running=None)
        return
    findings, registered = asyncio.run(
        _ask(bootstrap, situation.security, must_run=asked_for, may_write=situation.may_write)
    )
    yield from findings
    is_that_one = bootstrap == f"{_reachable(options.listeners[0].host)}:{options.listeners[0].port}"
    if registered is None:
        return
    http_url = situation.http_url
    if options.http_port and is_that_one:
        host = _reachable(options.http_host)
        yield _http(host, options.http_port, options.http_tls, situation.security)
        http_url = http_url or f"{'http' if options.http_tls is None else 'https'}://{host}:{options.http_port}"
    if len(registered.brokers) > 1 or not is_that_one:
        yield from _readiness(http_url, registered, situation.security)


def _reachable(host: str) -> str:
    """Where to find a listener on every address of this machine: on the loopback one."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here.
    return f"[{shown}]" if ":" in shown else shown


async def _ask(
    bootstrap: str, security: PeerSecurity, *, must_run: bool, may_write: bool
) -> tuple[list[CheckResult], DescribedCluster | None]:
    """The findings, and the registered brokers where one of them answers."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except InvalidConfig as error:
        return [fail("kafka", str(error), "Correct --bootstrap HOST:PORT.")], None
    clock = SystemClock()
    async with Cluster(addresses, timeout_ms=TIMEOUT_MS, security=security) as cluster:
        began_ms = clock.monotonic_ms()
        try:
            described = await _metadata(cluster, addresses)
            took_ms = clock.monotonic_ms() - began_ms
            registered = await describe_cluster(cluster)
        except Retriable as error:
            if not security.security.protocol.uses_sasl and (wanted := await wanted_login(addresses, security)):
                return [fail("kafka", wanted, "Or name a listener that wants none with --bootstrap.")], None
            if must_run or not isinstance(error, ConnectionLost):
                advice = "Start it, or correct --bootstrap."
                return [fail("kafka", f"{bootstrap} does not answer: {error}", advice)], None
            return [ok("kafka", f"no broker runs at {bootstrap}", running=False)], None
        except Corrupt as error:
            advice = "Name a Kafka address; HTTP and TLS ports answer otherwise."
            return [fail("kafka", f"what answers at {bootstrap} is no Kafka broker: {error}", advice)], None
        except TieredError as error:
            return [fail("kafka", f"{bootstrap} answers with an error: {error}", "See the broker's log.")], None
        names = counted(len(described.topics), "topic")
        message = f"{bootstrap} answers in {took_ms:.0f} ms: {counted(len(described.brokers), 'broker')}, {names}"
        found = [ok("kafka", message, running=True, metadata_ms=took_ms)]
        found += await _leaders(described)
        found += await asyncio.gather(*(_advertised(broker, security) for broker in registered.brokers.values()))
        if may_write:
            found.append(await _round_trip(cluster, clock))
    return found, registered


async def _metadata(cluster: Cluster, addresses: Sequence[tuple[str, int]]) -> ClusterMetadata:
    """From the first that answers; without the patience that commands have for one that does not listen."""
    failure: TieredError | None = None
    for host, port in addresses:
        try:
            (await Peer.connect(host, port, timeout_ms=TIMEOUT_MS, security=cluster.security)).close()
            return await cluster.metadata()
        except (Retriable, Corrupt) as error:
            failure = error
    assert failure is not None
    raise failure


async def _leaders(described: ClusterMetadata) -> list[CheckResult]:
    without = [
        f"{topic.name}-{partition.partition}"
        for topic in described.topics.values()
        for partition in topic.partitions
        if partition.leader_id < 0
    ]
    if not without:
        return []
    shown = ", ".join(without[:3]) + (" ..." if len(without) > 3 else "")
    message = f"{counted(len(without), 'partition')} without a leader: {shown}"
    return [fail("leaders", message, "Start the brokers that hold them.", leaderless=len(without))]


async def _advertised(broker: DescribedBroker, security: PeerSecurity) -> CheckResult:
    """Connects to the address that a registered broker advertises, as clients do next."""
    who, where = f"broker {broker.broker_id}", host_and_port(broker.host, broker.port)
    try:
        (await Peer.connect(broker.host, broker.port, timeout_ms=TIMEOUT_MS, security=security)).close()
    except TieredError as error:
        if broker.is_fenced:
            advice = (
                f"Start it; if it will not come back, `tiered brokers drain {broker.broker_id}` and then remove it."
            )
            return fail("registered", f"{who} is registered, out of service, and does not answer: {error}", advice)
        advice = "Start it, or give its --advertise HOST:PORT an address that clients can reach."
        return fail("advertised", f"{who} is registered, and its address does not answer: {error}", advice)
    if broker.is_fenced:
        return warn("registered", f"{who} answers at {where} and is out of service", "Let it start, or see its log.")
    return ok("advertised", f"clients are sent to {where}, where {who} answers")


def _readiness(http_url: str | None, registered: DescribedCluster, security: PeerSecurity) -> Iterator[CheckResult]:
    """What each broker in service says of itself over HTTP, by way of the one at `http_url`."""
    if http_url is None:
        yield ok("readiness", "the brokers were not asked whether they are ready: TIERED_HTTP_URL names none of them")
        return
    advice = "Give TIERED_HTTP_URL the HTTP address of a broker of this cluster."
    try:
        answer = HttpApi(http_url, security=security.security).cluster()
    except (CommandFailed, UsageError) as error:
        yield warn("readiness", f"the brokers were not asked whether they are ready: {error}", advice)
        return
    if answer.get("cluster_id") != registered.cluster_id:
        yield warn("readiness", f"the broker at {http_url} belongs to another cluster", advice)
        return
    rows = {row.get("broker_id"): row for row in answer["brokers"]}
    for broker in registered.brokers.values():
        health = rows.get(broker.broker_id, {}).get("health")
        if broker.is_fenced:
            continue
        if not isinstance(health, dict):
            yield fail(
                "readiness",
                f"broker {broker.broker_id} does not say over HTTP whether it is ready",
                "See its log; brokers reach each other at the addresses of --http.",
            )
        else:
            yield verdict_on_health("readiness", f"broker {broker.broker_id}", health)


async def _round_trip(cluster: Cluster, clock: SystemClock) -> CheckResult:
    name, value = f"tiered-doctor-{new_uuid().hex[:12]}", new_uuid().bytes
    advice = "See the broker's log."
    record = Record(offset=0, timestamp_ms=clock.now_ms(), key=None, value=value, headers=())
    try:
        if failure := _failure(await create_topics(cluster, [name], partitions=1, configs={})):
            return fail("round trip", f"no topic could be made: {failure}", advice)
        began_ms = clock.monotonic_ms()
        await cluster.produce(name, 0, encode_batch([record]))
        produced_ms = clock.monotonic_ms()
        fetched = await cluster.fetch(name, 0, 0)
        took_ms, fetch_ms = produced_ms - began_ms, clock.monotonic_ms() - produced_ms
        found = exact_batches(fetched.records, 0, len(fetched.records))
        values = [each.value for position, _ in found for each in records(fetched.records, position)]
    except TieredError as error:
        return fail("round trip", f"a record was not produced and fetched: {error}", advice)
    finally:
        left = await _deleted(cluster, name)
    if values != [value]:
        return fail("round trip", f"{counted(len(values), 'record')} came back, or another one", advice)
    if left:
        return warn("round trip", f"the topic {name} could not be deleted: {left}", f"Delete {name} by hand.")
    message = f"a record was produced in {took_ms:.1f} ms and fetched in {fetch_ms:.1f} ms; its topic is deleted"
    return ok("round trip", message, produce_ms=took_ms, fetch_ms=fetch_ms)


async def _deleted(cluster: Cluster, name: str) -> str | None:
    try:
        return _failure(await delete_topics(cluster, [name]))
    except TieredError as error:
        return str(error)


def _failure(results: Sequence[Any]) -> str | None:
    for each in results:
        if each.error_code:
            return reason(each.error_code, getattr(each, "error_message", None))
    return None


def _http(host: str, port: int, tls: ListenerTls | None, security: PeerSecurity) -> CheckResult:
    where = f"{'http' if tls is None else 'https'}://{host}:{port}/readyz"
    connection = (
        http.client.HTTPConnection(host.strip("[]"), port, timeout=TIMEOUT_MS / 1000)
        if tls is None
        else http.client.HTTPSConnection(
            host.strip("[]"), port, timeout=TIMEOUT_MS / 1000, context=client_context(security.security)
        )
    )
    advice = "Name the broker's HTTP address with --http; see its log."
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        health = json.loads(answer.read(MAX_BODY_BYTES))
        status = answer.status
    except (OSError, http.client.HTTPException, ValueError) as error:
        return warn("http", f"{where} does not answer as a broker does ({type(error).__name__})", advice)
    finally:
        connection.close()
    if not isinstance(health, dict) or "serving" not in health:
        return warn("http", f"{where} is not a Tiered broker's", advice, status=status)
    return verdict_on_health("http", where, health)


def _concern(health: Mapping[str, Any]) -> tuple[str, str] | None:
    """What serves on and yet must not stay so, and what to do; None where nothing is."""
    if trouble := health.get("store_trouble"):
        advice = "See docs/uploads.md, What is wrong with the store; nothing is uploaded meanwhile."
        return f"the object store is not as it should be: {trouble}", advice
    if health.get("sql_away"):
        return "the metadata store does not answer", "See the broker's log, and the database."
    if count := health.get("under_min_isr_partitions"):
        advice = "Bring back a broker that has a replica: `tiered topics list --under-min-isr`."
        return f"{count} partitions have fewer replicas in sync than min.insync.replicas: acks=all is refused", advice
    if int(health.get("held_back_ms", 0)) > HELD_BACK_MS:
        seconds = int(health["held_back_ms"]) // 1000
        advice = "See `tiered transactions find-hanging`. What is held back is not uploaded either."
        return f"an open transaction has kept readers of committed records waiting for {seconds} s", advice
    return None


def verdict_on_health(check: str, where: str, health: Mapping[str, Any]) -> CheckResult:
    """The verdict on what one broker says of itself, as `/readyz` has it."""
    if not health.get("serving"):
        return fail(check, f"{where} says that it does not serve", "Wait for its start, or see its log.")
    if health.get("metadata_went_back"):
        advice = "Bring back a database that has them: docs/operations.md, When the database went back."
        return fail(check, f"{where}: the metadata store has lost commits, so nothing is served", advice)
    if health.get("failed_partitions"):
        shown = ", ".join(health["failed_partitions"][:3])
        advice = "See the broker's log: it says what to do about each."
        return fail(check, f"{where}: partitions that are not served: {shown}", advice)
    if health.get("disk_full"):
        advice = "Free some space; it goes on by itself."
        return fail(check, f"{where}: its disk is full, and it refuses produce", advice)
    findings = {kind: count for kind, count in dict(health.get("findings") or {}).items() if count}
    if findings:
        shown = ", ".join(f"{count} {kind}" for kind, count in findings.items())
        advice = "See `tiered reconcile`: it says what to do about each."
        message = f"{where}: disk, metadata store and object store disagree: {shown}"
        return warn(check, message, advice, findings=sum(findings.values()))
    if (concern := _concern(health)) is not None:
        return warn(check, f"{where}: {concern[0]}", concern[1])
    backlog_bytes = int(health.get("upload_backlog_bytes", 0))
    disk_only_s = int(health.get("disk_only_age_ms", 0)) // 1000
    lacks = f"lacks records of the last {disk_only_s} s" if disk_only_s else "has every record"
    message = f"{where} says that it serves; {in_bytes(backlog_bytes)} wait for upload, and the object store {lacks}"
    return ok(check, message, backlog_bytes=backlog_bytes, disk_only_seconds=disk_only_s)

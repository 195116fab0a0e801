"""`kafka.*`: what a user may say to the client of the brokers, checked.

Owns which of Kafka's settings are served, which change nothing here, and which are refused. Must never put the value of
a setting into an error: it may be a password. Must never let one pass that it does not know.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered.errors import InvalidConfig
from tiered.peer.security import CLIENT_NAMES, ClientSecurity, client_security

DEFAULT_FETCH_BYTES = 8 << 20
DEFAULT_TIMEOUT_MS = 30_000
DEFAULT_BATCH_BYTES = 512 << 10
DEFAULT_TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""As long as brokers allow by default."""
_LEAST_BYTES, _MOST_BYTES = 1 << 10, 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of the brokers' client. `acks_all` and those behind it are of writes."""

    client_id: str = "tiered-spark"
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    acks_all: bool = True
    compression: str = "none"
    batch_bytes: int = DEFAULT_BATCH_BYTES
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    security: ClientSecurity = field(default_factory=ClientSecurity)


_READ = {
    "bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms", "isolation.level",
    "fetch.max.bytes", "max.partition.fetch.bytes",
}  # fmt: skip
_WRITE = {
    "bootstrap.servers", "client.id", "request.timeout.ms", "delivery.timeout.ms", "acks", "enable.idempotence",
    "compression.type", "batch.size", "transaction.timeout.ms",
}  # fmt: skip
_WITHOUT_EFFECT = {
    # They tune Kafka's Java client, and no row depends on them.
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "buffer.memory", "check.crcs",
    "client.dns.lookup", "client.rack", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "connections.max.idle.ms", "enable.metrics.push", "fetch.max.wait.ms", "fetch.min.bytes", "group.id",
    "group.instance.id", "group.protocol", "heartbeat.interval.ms", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "max.request.size",
    "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "partition.assignment.strategy", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms",
    "retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
}  # fmt: skip
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "key.deserializer": "keys are given as bytes; deserialize them with DataFrame operations",
    "value.deserializer": "values are given as bytes; deserialize them with DataFrame operations",
    "key.serializer": "keys are bytes or strings; serialize them with DataFrame operations",
    "value.serializer": "values are bytes or strings; serialize them with DataFrame operations",
    "interceptor.classes": "there is no Java client here",
    "metric.reporters": "there is no Java client here",
    "partitioner.class": "there is no Java client here; give the column partition",
    "partitioner.ignore.keys": "give the column partition",
    "transactional.id": "tasks write idempotently, and with transactionalIdPrefix each in a transaction of its own",
    "exclude.internal.topics": "internal topics are never read",
}
_SECURED = ("sasl.", "ssl.", "security.")


def check_client_names(given: Mapping[str, str]) -> None:
    """Nothing when every name in `given` (lower case, without `kafka.`) is known and served. Raises `InvalidConfig`."""
    for name in sorted(given):
        if name in _REFUSED:
            raise InvalidConfig(f"option kafka.{name} is not supported: {_REFUSED[name]}")
        if name.startswith(_SECURED) and name not in CLIENT_NAMES:
            close = difflib.get_close_matches(name, CLIENT_NAMES, n=1)
            raise InvalidConfig(
                f"option kafka.{name} is not known here: "
                + (f"is kafka.{close[0]} meant? " if close else "")
                + "certificates and keys are PEM, and docs/security-tls.md lists what clients take"
            )
        known = _READ | _WRITE | _WITHOUT_EFFECT | CLIENT_NAMES
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean kafka.{close[0]}?" if close else "docs/spark.md lists those that are known"
            raise InvalidConfig(f"unknown option kafka.{name}: {hint}")


def client_options(given: Mapping[str, str], *, writing: bool) -> ClientOptions:
    """The checked values of `given`, names in lower case without `kafka.`. Raises `InvalidConfig` with the way out."""
    check_client_names(given)
    others = (_READ - _WRITE) if writing else (_WRITE - _READ)
    for name in sorted(given.keys() & others):
        raise InvalidConfig(f"option kafka.{name} belongs to {'reads' if writing else 'writes'}: remove it")
    return ClientOptions(
        client_id=given.get("client.id", "").strip() or ClientOptions().client_id,
        timeout_ms=_timeout_ms(given),
        fetch_bytes=min(
            _number(given, "fetch.max.bytes", DEFAULT_FETCH_BYTES, _LEAST_BYTES, 2**31 - 1),
            _number(given, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES, _LEAST_BYTES, 2**31 - 1),
            _MOST_BYTES,
        ),
        acks_all=_acks_all(given),
        compression=_one_of(given, "compression.type", "none", ("none", "gzip", "snappy", "lz4", "zstd")),
        batch_bytes=_number(given, "batch.size", DEFAULT_BATCH_BYTES, 1, _MOST_BYTES),
        transaction_timeout_ms=_number(given, "transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS, 1, 2**31 - 1),
        security=_security(given),
    )


def _security(given: Mapping[str, str]) -> ClientSecurity:
    told = {name: value for name, value in given.items() if name in CLIENT_NAMES}
    found = client_security(told, where="option kafka.")
    for prefix, is_spoken in (("ssl.", found.protocol.uses_tls), ("sasl.", found.protocol.uses_sasl)):
        without = next((name for name in sorted(told) if name.startswith(prefix)), None)
        if without is not None and not is_spoken:
            raise InvalidConfig(
                f"option kafka.{without} has no effect with kafka.security.protocol={found.protocol}: give the "
                "protocol of the brokers' listener as well"
            )
    return found


def _timeout_ms(given: Mapping[str, str]) -> int:
    """How long one request may take. A call that may be repeated gets as long again."""
    if "delivery.timeout.ms" in given:
        return max(1, _number(given, "delivery.timeout.ms", 0, 100, 2**31 - 1) // 2)
    name = "default.api.timeout.ms" if "default.api.timeout.ms" in given else "request.timeout.ms"
    return _number(given, name, DEFAULT_TIMEOUT_MS, 100, 2**31 - 1)


def _acks_all(given: Mapping[str, str]) -> bool:
    acks = _one_of(given, "acks", "all", ("all", "-1", "1", "0"))
    if acks == "0":
        raise InvalidConfig("option kafka.acks is 0, by which a task cannot know what was written: use all or 1")
    idempotent = _one_of(given, "enable.idempotence", "true", ("true", "false")) == "true"
    if idempotent and acks == "1" and "enable.idempotence" in given:
        raise InvalidConfig("option kafka.enable.idempotence needs kafka.acks=all: remove one of them")
    if acks != "1" and not idempotent:
        raise InvalidConfig(
            "option kafka.enable.idempotence is false: writes with acks=all are always idempotent; remove it"
        )
    return acks != "1"


def _one_of(given: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name, default).strip().lower()
    if text not in allowed:
        raise InvalidConfig(f"option kafka.{name} is {text!r}; use one of {', '.join(allowed)}")
    return text


def _number(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    stripped = text.strip()
    if not stripped.isascii() or not stripped.isdigit() or not least <= int(stripped) <= most:
        raise InvalidConfig(f"option kafka.{name} is {text!r}; give a number from {least} to {most}")
    return int(stripped)

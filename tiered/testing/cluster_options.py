"""The options of a test cluster's brokers: quick settings, topic defaults, free ports.

Owns the settings that differ from a broker's defaults because a test cannot wait. Must never start anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiered.config import ServeOptions

QUICK_SETTINGS: Mapping[str, str] = {
    # A group of one test is complete when its first member joins.
    "group.initial.rebalance.delay.ms": "0",
    # Tests of members that vanish ask for session time-outs that no real group would.
    "group.min.session.timeout.ms": "100",
    # Records in tests are often dated by hand, years ago: they go only where a test asks for it.
    "log.retention.ms": "-1",
    # Work that runs every few seconds or minutes elsewhere runs while a test waits.
    "tiered.upload.interval.ms": "20",
    "tiered.checkpoint.interval.ms": "20",
    "log.retention.check.interval.ms": "100",
    "tiered.sweep.interval.ms": "200",
    # A test that makes its store fail, or counts what is asked of it, wants no request that it did not cause.
    "tiered.reconcile.interval.ms": "-1",
    # A store that was made slow must not hold a test up for longer than this.
    "tiered.store.timeout.ms": "5000",
    # With several brokers: how soon one that was killed is missed. A loaded machine must not make one seem dead.
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1000",
}
"""Where a test cluster differs from `tiered serve`; `settings=` wins over each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """The test's options, checked: one broker's part of them."""

    broker_id: int
    rack: str
    data: Path
    kafka_port: int
    http_port: int
    settings: Mapping[str, str]
    sql_url: str
    store_url: str
    listeners: tuple[str, ...] = ()
    """Beside the plaintext one, as --listener has them."""
    inter_broker_listener: str | None = None
    http_scheme: str = "http"

    def as_serve_takes_it(self) -> dict[str, object]:
        """The options of `tiered serve` by name, with `_` for `-`: a list for one that is repeated."""
        return {
            "data": self.data,
            "kafka": f"127.0.0.1:{self.kafka_port}",
            "http": f"{self.http_scheme}://127.0.0.1:{self.http_port}".removeprefix("http://"),
            "meta": self.sql_url,
            "store": self.store_url,
            "broker_id": self.broker_id,
            "rack": self.rack,
            "listener": list(self.listeners) or None,
            "inter_broker_listener": self.inter_broker_listener,
            "set": [f"{name}={value}" for name, value in self.settings.items()],
        }

    def serve_options(self) -> "ServeOptions":
        """The same for a broker. Raises InvalidConfig for a setting that is unknown or not allowed."""
        from types import SimpleNamespace

        from tiered.config import load_serve_options
        from tiered.config.broker_changes import start_warnings
        from tiered.errors import InvalidConfig

        options = load_serve_options(SimpleNamespace(**self.as_serve_takes_it()), environ={}, toml={})
        # A broker warns and starts; nobody reads the log of a test that passes.
        for warning in start_warnings(options.settings.static, (each.name for each in options.listeners)):
            raise InvalidConfig(warning)
        return options


def settings_of(
    settings: Mapping[str, object], topic_defaults: Mapping[str, object], *, brokers: int = 1
) -> dict[str, str]:
    """The broker settings of a test cluster: the quick ones, then the defaults of topics, then `settings`.

    Topics of several brokers have up to three replicas, of which one may be missing. Raises InvalidConfig for a topic
    config that is unknown or has no default at a broker.
    """
    merged = dict(QUICK_SETTINGS)
    if brokers > 1:
        merged["default.replication.factor"] = str(min(3, brokers))
    if brokers > 2:
        merged["min.insync.replicas"] = "2"
    merged |= {_broker_name(name): text_of(value) for name, value in topic_defaults.items()}
    merged |= {name: text_of(value) for name, value in settings.items()}
    return merged


def text_of(value: object) -> str:
    """A setting as Kafka writes it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _broker_name(name: str) -> str:
    from tiered.config import TOPIC_SETTINGS
    from tiered.errors import InvalidConfig

    found = TOPIC_SETTINGS.get(name)
    if found is None:
        raise InvalidConfig(f"topic_defaults: there is no topic config {name!r}")
    if not found.synonyms:
        raise InvalidConfig(f"topic_defaults: {name} has no default; give it to create_topic(configs=…) instead")
    return found.synonyms[0].name

"""The names that users may build on, as the code has them. Formats at rest have golden files of their own."""

import argparse
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tiered.testing
from pyspark_tiered import options, write_options
from tests.catalogue import open_ready
from tests.house.commands import make_targets, subcommands
from tiered.cli import build_parser
from tiered.config.broker import BROKER_SETTINGS
from tiered.config.client_metrics import CLIENT_METRICS_SETTINGS
from tiered.config.group import GROUP_SETTINGS
from tiered.config.serve import OPTIONS
from tiered.config.topic import TOPIC_SETTINGS
from tiered.server.http.metrics.broker import METRICS
from tiered.server.http.routes import ROUTES
from tiered.server.kafka.apis import served_apis

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden/public_names.txt"


def command_lines(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            name = "/".join(action.option_strings) or action.dest.upper()
            yield f"command {path} {name} default={action.default!r} choices={action.choices!r}"
    for name, deeper in subcommands(parser).items():
        yield from command_lines(deeper, f"{path} {name}")


def columns() -> Iterator[str]:
    """Of the database as migrations leave it; views are what operators SELECT from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "meta.db"
        open_ready(f"sqlite:///{path}").close_sync()
        with sqlite3.connect(path) as database:
            for kind, name in database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')"):
                for column in database.execute(f'PRAGMA table_info("{name}")'):
                    yield f"sql {kind} {name}.{column[1]} {column[2]}".rstrip()
        database.close()


def text() -> str:
    """The golden file."""
    return "".join(f"{name}\n" for name in sorted(set(public_names())))


def public_names() -> Iterator[str]:
    yield from command_lines(build_parser(), "tiered")
    yield from columns()
    for option in OPTIONS:
        yield f"option of serve {option.flag} {option.variable} {option.key}"
    for route in ROUTES:
        yield f"route {route.method} {route.path} answers {sorted(route.answers)}"
    for metric in METRICS:
        if metric.name.startswith("tiered_"):
            yield f"metric {metric.name} {metric.kind} {' '.join(metric.labels)}".rstrip()
    registries = {
        "broker": BROKER_SETTINGS,
        "topic": TOPIC_SETTINGS,
        "group": GROUP_SETTINGS,
        "client metrics": CLIENT_METRICS_SETTINGS,
    }
    for kind, registry in registries.items():
        for name, setting in registry.items():
            yield f"setting of {kind} {name} {setting.type.name} default={setting.default!r}"
    for api in served_apis():
        yield f"Kafka API {api.key} {api.name} {api.versions[0]} to {api.versions[1]}"
    for name in options._KNOWN:
        yield f"option of Spark's reader {name}"
    for name in write_options._KNOWN:
        yield f"option of Spark's writer {name}"
    for name in tiered.testing.__all__:
        yield f"tiered.testing.{name}"
    for target in make_targets():
        yield f"make {target}"

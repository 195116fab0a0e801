"""Offset commits together and one by one, side by side, on SQLite and on a PostgreSQL that syncs to disk.

Owns the order: within a round every variant runs once on each database, each on an empty one, so that what else
the machine does meets them alike.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.commits import TOGETHER, VARIANTS
from tests.postgres import PostgresDatabases, PostgresServer

Runs = dict[str, dict[str, list[dict[str, float]]]]


def commits(folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]) -> Runs:
    """By database and variant, each run's commits per second; a first round is dropped."""
    # Unix sockets have short names, and the server's own user must be able to enter the folder.
    postgres_folder = Path(tempfile.mkdtemp(prefix="tiered-pg-"))
    server = PostgresServer(postgres_folder, durable=True)
    databases = PostgresDatabases(server.url())
    results: Runs = {}
    try:
        for number in range(rounds + 1):
            for database in ("SQLite", "PostgreSQL"):
                for variant in VARIANTS:
                    run = _run(databases, folder, database, variant, seconds)
                    if number:
                        results.setdefault(database, {}).setdefault(variant, []).append(run)
                        say(f"commits on {database}, {variant}: {run['commits_per_s']:,.0f}/s (load {run['load']:.1f})")
    finally:
        databases.close()
        server.stop()
        shutil.rmtree(postgres_folder, ignore_errors=True)
    for database, runs in results.items():
        best = max(max(run["commits_per_s"] for run in runs[each]) for each in VARIANTS if each != TOGETHER)
        worst = min(run["commits_per_s"] for run in runs[TOGETHER])
        say(f"commits on {database}: the slowest run together is {worst / best:.1f} × the fastest one by one")
    return results


def _run(databases: PostgresDatabases, folder: Path, database: str, variant: str, seconds: float) -> dict[str, float]:
    place = folder / "run"
    place.mkdir(parents=True)
    url = f"sqlite:///{place / 'meta.db'}" if database == "SQLite" else databases.create()
    load = os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.commits", url, str(place), variant, str(seconds)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"commits on {database}, {variant} failed: {done.stderr.strip()[-3000:]}")
    if database != "SQLite":
        databases.drop(url)
    shutil.rmtree(place)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result | {"load": load}

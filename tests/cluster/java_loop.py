"""The loops of transactions of Apache Kafka's Java client: how they are made, and the command that runs one.

Owns what must be there for it. `transaction_keeper` runs them as it runs the loops of librdkafka.
"""

import subprocess
from pathlib import Path

import pytest

from tests.clients.foreign_tools import tool
from tests.clients.java_client import compiled

PROGRAM = "TransactionLoop"


def java_command(folder: Path) -> list[str]:
    """What runs an instance when its options follow. Raises SystemExit with what is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        java = tool("java")
        compiled(PROGRAM, folder)
    except (pytest.fail.Exception, subprocess.SubprocessError) as error:
        raise SystemExit(f"--java needs Java 17, and Maven, which fetches Kafka's client once: {error}") from error
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [java, *options, "-cp", f"{folder}/*:{folder}", PROGRAM]

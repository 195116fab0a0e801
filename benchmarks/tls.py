"""Produce and consume over TLS beside plaintext: the same broker, the same client, two listeners.

Owns the certificate that is made for it. Must never measure a handshake: one connection carries everything.
"""

import dataclasses
from pathlib import Path

from benchmarks.scenarios import IN_MEMORY, Load, Run, Say, run_load
from benchmarks.systems import Tiered
from tests.certificates import Authority

LISTENER = "SECURE"


def over_tls(folder: Path, *, rounds: int, gb: float, say: Say) -> dict[str, dict[str, list[Run]]]:
    """Runs of each scenario by side; the two alternate, and the first round only warms and is dropped."""
    authority = Authority(folder / "certificates")
    broker = Tiered(
        folder=folder,
        arguments=("--listener", f"{LISTENER}=SSL://127.0.0.1:0"),
        settings={"ssl.keystore.location": str(authority.sign("broker").both)},
    )
    broker.start()
    results: dict[str, dict[str, list[Run]]] = {}
    records = int(gb * 1e9 / 1024)
    try:
        plain = dataclasses.replace(broker)
        secured = dataclasses.replace(broker, name="tls", bootstrap=broker.listeners[LISTENER])
        for number in range(rounds + 1):
            for system, ca in ((plain, ""), (secured, str(authority.pem))):
                topic = f"{system.name}-{number}"
                broker.create_topic(topic, IN_MEMORY)
                for what in ("produce", "consume"):
                    load = Load(name=f"{what} 1024 B, TLS", what=what, size_bytes=1024, records=records, ca=ca)
                    run = run_load(system, load, topic)
                    if number > 0:
                        results.setdefault(load.name, {}).setdefault(system.name, []).append(run)
                        say(f"{load.name:32}{system.name:8}{run['mb_per_s']:8.0f} MB/s"
                            f"{run['broker_cpu_s_per_gb']:8.2f} CPU s/GB")  # fmt: skip
                broker.delete_topic(topic)
    finally:
        broker.stop()
    return results

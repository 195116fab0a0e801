"""Starts the LocalStack of the environment that runs this, on loopback alone. run.py makes that environment.

Owns what LocalStack is told. Must never listen where anything but this machine can reach it: it knows no passwords, and
whoever reaches it could have it run code.
"""

import argparse
import importlib
import os
import runpy
import socket
import tempfile
from pathlib import Path
from typing import Any

ANY = {socket.AF_INET: ("", "0.0.0.0"), socket.AF_INET6: ("", "::")}
LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_bind = socket.socket.bind


def bind_on_loopback(self: socket.socket, address: Any) -> None:
    """Binds to loopback what asks for all addresses; LocalStack does, whatever host `GATEWAY_LISTEN` names."""
    if self.family in ANY and address[0] in ANY[self.family]:
        address = (LOOPBACK[self.family], *address[1:])
    _bind(self, address)


def main() -> None:
    """Serves until SIGTERM or SIGINT, then exits; everything that was stored is gone with it."""
    parser = argparse.ArgumentParser(prog="serve.py")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiered-localstack-") as folder:
        # They are read when localstack.config is imported.
        os.environ |= {
            "OVERRIDE_IN_DOCKER": "0",  # it takes other containers than its own for its own
            "GATEWAY_LISTEN": f"127.0.0.1:{arguments.port}",
            "GATEWAY_SERVER": "twisted",  # hypercorn stores torn objects when a PUT breaks off
            "DNS_ADDRESS": "0",
            "FILESYSTEM_ROOT": folder,
            "DISABLE_EVENTS": "1",  # nothing is told to anybody, and nothing fetched
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "SKIP_INFRA_DOWNLOADS": "1",
            "TIERED_BUCKET": arguments.bucket,
        }
        socket.socket.bind = bind_on_loopback  # type: ignore[method-assign, assignment]
        importlib.import_module("localstack.config").dirs.init = str(Path(__file__).resolve().parent / "init")
        runpy.run_module("localstack.runtime.main", run_name="__main__")


if __name__ == "__main__":
    main()

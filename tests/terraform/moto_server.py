"""All of AWS that moto knows, on loopback: `python -m tests.terraform.moto_server PORT`."""

import sys

import moto.emrserverless.models
from moto.server import main as serve

# Terraform waits for CREATED; moto says STARTED at once.
moto.emrserverless.models.APPLICATION_STATUS = "CREATED"


def main(port: str) -> None:
    """Serves until it is stopped. moto listens on all addresses unless it is told otherwise."""
    sys.argv = ["moto_server", "-H", "127.0.0.1", "-p", port]
    serve()


if __name__ == "__main__":
    main(sys.argv[1])

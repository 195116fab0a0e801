"""All of AWS that moto knows, on loopback: `python -m tests.terraform.moto_server PORT`."""

import sys
from typing import Any

import moto.emrserverless.models
from moto.emrserverless.models import EMRServerlessBackend
from moto.server import main as serve

# Terraform waits for CREATED; moto says STARTED at once.
moto.emrserverless.models.APPLICATION_STATUS = "CREATED"

_KNOWN_RELEASE = "emr-7.9.0"
_create_application = EMRServerlessBackend.create_application


def _create_with_any_release(backend: EMRServerlessBackend, *, release_label: str, **given: Any) -> Any:
    """moto refuses names of releases that came after emr-7; the application says the one that was asked for."""
    made = _create_application(backend, release_label=_KNOWN_RELEASE, **given)
    made.release_label = release_label
    return made


EMRServerlessBackend.create_application = _create_with_any_release  # type: ignore[method-assign,assignment]


def main(port: str) -> None:
    """Serves until it is stopped. moto listens on all addresses unless it is told otherwise."""
    sys.argv = ["moto_server", "-H", "127.0.0.1", "-p", port]
    serve()


if __name__ == "__main__":
    main(sys.argv[1])

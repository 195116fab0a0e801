"""`tiered serve`: reads its options, sets up logging, runs the broker."""

import argparse
import gc
import logging
import os

from tiered.cli.logs import set_up_logging
from tiered.config import ServeOptions, load_serve_options
from tiered.config.broker_changes import start_warnings, without_effect

log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Runs a broker until it is told to stop. Raises InvalidConfig that names the option that is wrong."""
    # What is imported and opened from here on stays: looking for garbage in it takes a tenth of the start. The
    # broker turns the collector on again once it serves.
    gc.disable()
    options = load_serve_options(arguments, os.environ)
    set_up_logging(options.log_format)
    _say_what_does_nothing(options)
    from tiered.server.serve import run as run_broker

    return run_broker(options)


def _say_what_does_nothing(options: ServeOptions) -> None:
    static = options.settings.static
    for warning in start_warnings(static, (each.name for each in options.listeners)):
        log.warning("%s", warning)
    if names := without_effect(static):
        log.info("accepted from Kafka, without effect here: %s", ", ".join(names))

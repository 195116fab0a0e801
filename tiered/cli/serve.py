"""`tiered serve`: reads its options, sets up logging, runs the broker."""

import argparse
import gc
import os

from tiered.cli.logs import set_up_logging
from tiered.config import load_serve_options


def run(arguments: argparse.Namespace) -> int:
    """Runs a broker until it is told to stop. Raises InvalidConfig that names the option that is wrong."""
    # What is imported and opened from here on stays: looking for garbage in it takes a tenth of the start. The
    # broker turns the collector on again once it serves.
    gc.disable()
    options = load_serve_options(arguments, os.environ)
    set_up_logging(options.log_format)
    from tiered.server.serve import run as run_broker

    return run_broker(options)

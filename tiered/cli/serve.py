"""`tiered serve`: reads its options, sets up logging, runs the broker."""

import argparse
import os

from tiered.cli.logs import set_up_logging
from tiered.config import load_serve_options


def run(arguments: argparse.Namespace) -> int:
    """Runs a broker until it is told to stop. Raises InvalidConfig that names the option that is wrong."""
    options = load_serve_options(arguments, os.environ)
    set_up_logging(options.log_format)
    from tiered.server.serve import run as run_broker

    return run_broker(options)

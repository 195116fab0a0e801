"""The command line: `tiered …`. People's input, and the answers to it.

Owns arguments, output and exit codes: 0 done, 1 failed, 2 usage. Must never touch data itself: every command
asks a broker over the wire, and `serve` is one. Must import next to nothing before the command is known, for
`tiered serve` pays for it on every start.
"""

from tiered.cli.main import main
from tiered.cli.parser import build_parser

__all__ = ["build_parser", "main"]

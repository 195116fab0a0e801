"""The APIs that are served, and those that the table of rights asks about."""

from tests.components.rights_table import ROWS
from tiered.server.kafka.apis import served_apis

ASKED = [row for row in ROWS if row.key in {api.key for api in served_apis()}]
NEEDED = [row for row in ASKED if row.rights]
CHANGING = {api.key for api in served_apis() if api.audit is not None or api.name in ("Produce", "EndTxn")}
"""Those that may change what a broker has of topics and settings."""

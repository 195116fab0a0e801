"""The APIs that are served, and those that the table of rights asks about."""

from tests.components.rights_table import ROWS
from tiered.server.kafka.apis import served_apis

SERVED = {api.key: api.name for api in served_apis()}
ASKED = [row for row in ROWS if row.key in SERVED]
NEEDED = [row for row in ASKED if row.rights]

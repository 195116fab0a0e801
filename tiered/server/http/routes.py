"""Every route that is served, in the order of the OpenAPI document. A new module of routes is one row here.

Owns the list alone.
"""

from tiered.server.http.api import access as routes_access
from tiered.server.http.api import cluster as routes_cluster
from tiered.server.http.api import console as routes_console
from tiered.server.http.api import cost as routes_cost
from tiered.server.http.api import delete_records as routes_delete_records
from tiered.server.http.api import groups as routes_groups
from tiered.server.http.api import health as routes_health
from tiered.server.http.api import pins as routes_pins
from tiered.server.http.api import reconcile as routes_reconcile
from tiered.server.http.api import records as routes_records
from tiered.server.http.api import retention as routes_retention
from tiered.server.http.api import segments as routes_segments
from tiered.server.http.api import tail as routes_tail
from tiered.server.http.api import topics as routes_topics
from tiered.server.http.door import browser_guard
from tiered.server.http.messages import openapi
from tiered.server.http.messages.route import Route
from tiered.server.http.metrics import broker as routes_metrics
from tiered.server.http.v3 import cluster as routes_v3_cluster
from tiered.server.http.v3 import configs as routes_v3_configs
from tiered.server.http.v3 import groups as routes_v3_groups
from tiered.server.http.v3 import lags as routes_v3_lags
from tiered.server.http.v3 import records as routes_v3_records
from tiered.server.http.v3 import topics as routes_v3_topics

ROUTES: tuple[Route, ...] = (
    *routes_health.ROUTES,
    *routes_metrics.ROUTES,
    *openapi.ROUTES,
    *browser_guard.ROUTES,
    *routes_cluster.ROUTES,
    *routes_topics.ROUTES,
    *routes_segments.ROUTES,
    *routes_retention.ROUTES,
    *routes_pins.ROUTES,
    *routes_records.ROUTES,
    *routes_delete_records.ROUTES,
    *routes_tail.ROUTES,
    *routes_groups.ROUTES,
    *routes_access.ROUTES,
    *routes_cost.ROUTES,
    *routes_reconcile.ROUTES,
    *routes_console.ROUTES,
    *routes_v3_cluster.ROUTES,
    *routes_v3_topics.ROUTES,
    *routes_v3_configs.ROUTES,
    *routes_v3_groups.ROUTES,
    *routes_v3_lags.ROUTES,
    *routes_v3_records.ROUTES,
)

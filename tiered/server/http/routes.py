"""Every route that is served, in the order of the OpenAPI document. A new module of routes is one row here.

Owns the list alone.
"""

from tiered.server.http import (
    openapi,
    routes_access,
    routes_catalogue,
    routes_cluster,
    routes_console,
    routes_cost,
    routes_delete_records,
    routes_groups,
    routes_health,
    routes_metrics,
    routes_pins,
    routes_reconcile,
    routes_records,
    routes_retention,
    routes_tail,
    routes_topics,
    routes_v3_cluster,
    routes_v3_configs,
    routes_v3_groups,
    routes_v3_lags,
    routes_v3_records,
    routes_v3_topics,
    security,
)
from tiered.server.http.route import Route

ROUTES: tuple[Route, ...] = (
    *routes_health.ROUTES,
    *routes_metrics.ROUTES,
    *openapi.ROUTES,
    *security.ROUTES,
    *routes_cluster.ROUTES,
    *routes_topics.ROUTES,
    *routes_catalogue.ROUTES,
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

"""Every route that is served, in the order of the OpenAPI document. A new module of routes is one row here.

Owns the list alone.
"""

from itertools import chain

from tiered.server.http.api import (
    acls,
    brokers,
    cluster,
    console,
    groups,
    health,
    newest,
    partitions,
    pins,
    quotas,
    records,
    search,
    tail,
    topics,
    transaction_commits,
    transactions,
    users,
)
from tiered.server.http.door import browser_guard
from tiered.server.http.messages import openapi
from tiered.server.http.messages.route import Route
from tiered.server.http.metrics import broker as metrics
from tiered.server.http.v3 import cluster as v3_cluster
from tiered.server.http.v3 import configs as v3_configs
from tiered.server.http.v3 import groups as v3_groups
from tiered.server.http.v3 import records as v3_records
from tiered.server.http.v3 import topics as v3_topics

_SERVICE = (health, metrics, openapi, browser_guard, console)
_OURS = (
    *(cluster, brokers, topics, partitions, pins, records, newest, search, tail),
    *(groups, transactions, transaction_commits),
    *(acls, users, quotas),
)
_V3 = (v3_cluster, v3_topics, v3_configs, v3_groups, v3_records)

ROUTES: tuple[Route, ...] = tuple(chain.from_iterable(module.ROUTES for module in (*_SERVICE, *_OURS, *_V3)))

"""The table of served APIs: the rows that the modules of `api/` hold, so a new API is one file.

Owns which rows a broker and which a read replica serves. Must never say anything of a single API: its row does.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tiered.server.kafka import api as api_folder
from tiered.server.kafka.api import api_versions
from tiered.server.kafka.dispatch import Api, Context, MessageHandler, Refused, replica_of
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.refusal import refusal


def _rows() -> Iterator[Api]:
    """Every row in `api/`; that of ApiVersions is made last, for it lists the others."""
    for module in pkgutil.iter_modules(api_folder.__path__, f"{api_folder.__name__}."):
        held = vars(importlib.import_module(module.name)).values()
        yield from (each for each in held if isinstance(each, Api))


_SERVED = tuple(sorted(_rows(), key=lambda api: api.key))


def served_apis() -> tuple[Api, ...]:
    """Every API of this broker; ApiVersions lists exactly these."""
    return (*_SERVED, api_versions.api_versions(_SERVED))


def replica_apis() -> tuple[Api, ...]:
    """Every API of a read replica, as its row says; ApiVersions lists exactly these."""
    rows = [_on_replica(api) for api in _SERVED if api.on_replica is not None]
    return (*rows, _on_replica(api_versions.api_versions(rows)))


def _on_replica(api: Api) -> Api:
    how: Any = _refusing(api.key, api.on_replica) if isinstance(api.on_replica, Refused) else api.on_replica
    return replace(api, raw=how) if api.raw is not None else replace(api, handle=how, audit=None)


def _refusing(key: int, refused: Refused) -> MessageHandler:
    """Nothing of the request is looked at, so nothing of it can be carried out."""

    async def handle(context: Context, request: Any, _reply: Any) -> Any:
        error = replica_of(context).refusal()
        code = error_code(error) if refused.code is None else refused.code
        parts = 2 * context.broker.settings.limits.tiered_max_partitions
        return refusal(key, context.api_version, request, code, str(error), max_parts=parts)

    return handle

"""Binds every listener of a broker or a read replica.

Owns the order alone: what was bound before one that fails is closed by whoever started it. Must never accept.
"""

import dataclasses
from collections.abc import Sequence

from tiered.config.listeners import ListenerOptions
from tiered.server.addresses import bind_or_explain
from tiered.server.kafka.transport.listener import KafkaListener


def bound_listeners(kafka: KafkaListener, listeners: Sequence[ListenerOptions]) -> tuple[ListenerOptions, ...]:
    """The listeners as they are bound: no port is 0. Raises InvalidConfig that names the option to change."""
    return tuple(_bound(kafka, each) for each in listeners)


def _bound(kafka: KafkaListener, wanted: ListenerOptions) -> ListenerOptions:
    host, port = bind_or_explain(lambda: kafka.bind(wanted), (wanted.host, wanted.port), wanted.option)
    return dataclasses.replace(wanted, host=host, port=port)

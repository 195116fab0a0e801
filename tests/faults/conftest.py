"""The same brokers as the component tests have."""

from tests.components.conftest import broker, make_broker

__all__ = ["broker", "make_broker"]

"""What tests of the simulation's parts share."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.loop import SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(Random(1))
    yield loop
    loop.close()

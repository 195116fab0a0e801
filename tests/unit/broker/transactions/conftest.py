"""What the tests of the coordinator share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.broker.transactions.transacting import Transacting, transacting


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Transacting]:
    async with transacting(tmp_path) as found:
        yield found

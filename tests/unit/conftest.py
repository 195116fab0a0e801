"""What all tests within one process share: nothing of a file goes on when it has ended."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_thread_goes_on() -> Iterator[None]:
    """One that spins would take the interpreter away from every later test, and make each syscall of theirs slow."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} goes on after the last test of this file"


@pytest.fixture
def folder_on_disk() -> Iterator[Path]:
    """Instead of `tmp_path` where a test asks what is resident: a file system in memory does not say."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)

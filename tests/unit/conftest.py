"""What all tests within one process share: nothing of a file goes on when it has ended."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_thread_goes_on() -> Iterator[None]:
    """One that spins would take the interpreter away from every later test, and make each syscall of theirs slow."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} goes on after the last test of this file"

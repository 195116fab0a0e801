"""Processes of pytest that share files of tests: each takes the next file that no other has, and imports only those.

Owns the option `--shared-in FOLDER`, where a file is taken by making an entry of its name. Every process is given the
same files in the same order. Each of pytest-xdist's workers would import every file.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shared-in", type=Path, help="a folder where processes with the same files take one at a time")


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.collectonly:
        config.pluginmanager.register(SharedFiles(config.getoption("--shared-in")))


class SharedFiles:
    """What this process takes of the files that it was given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[pytest.Collector] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """True: files are found, and imported once they are taken."""
        session.perform_collect(genitems=False)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item | pytest.Collector]) -> None:
        """Files are not chosen by `-k` and `-m`, which look at what is in them: at first nothing is known of that."""
        if not self._files:
            self._files = [each for each in items if isinstance(each, pytest.Collector)]
            items[:] = [each for each in items if isinstance(each, pytest.Item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """True: each test of the taken files ran.

        The next file is taken before the last test of one begins: that test leaves to it what fixtures of the session
        have made.
        """
        items = self._taken(session)
        item, count = next(items, None), 0
        while item is not None:
            following = next(items, None)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item, count = following, count + 1
        session.testscollected = count
        # What is left stays: pytest would go through it five times, in its last look for what nobody closed.
        gc.collect()
        gc.freeze()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Whoever comes when the others have taken everything has not failed."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def _taken(self, session: pytest.Session) -> Iterator[pytest.Item]:
        for file in self._files:
            try:
                (self._folder / file.nodeid.replace("/", "-")).touch(exist_ok=False)
            except FileExistsError:
                continue
            items = list(session.genitems(file))
            session.ihook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            yield from items

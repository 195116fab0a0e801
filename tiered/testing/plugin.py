"""The pytest plugin: the fixture `tiered_broker`, and the factory `tiered_cluster` for tests that want their own.

Loaded in every pytest run where Tiered is installed: it must import nothing of the broker, and start nothing that
no test has asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from tiered.testing.local_cluster import LocalCluster, cluster

MARK = "tiered_broker"
SCOPE = "tiered_broker_scope"
SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SCOPE,
        f"how long a tiered_broker lives: {', '.join(SCOPES)} (function: each test has its own)",
        default="function",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(**options): options of tiered.testing.cluster() for this test's tiered_broker"
    )
    if config.getini(SCOPE) not in SCOPES:
        raise pytest.UsageError(f"{SCOPE}={config.getini(SCOPE)} is not known: use one of {', '.join(SCOPES)}")


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 - pytest passes it by name
    return config.getini(SCOPE)


@pytest.fixture(scope=_scope)
def tiered_broker_options() -> dict[str, Any]:
    """Options of `tiered.testing.cluster()` for every `tiered_broker`: override it in conftest.py."""
    return {}


@pytest.fixture(scope=_scope)
def tiered_broker(request: pytest.FixtureRequest, tiered_broker_options: dict[str, Any]) -> Iterator[LocalCluster]:
    """A running cluster of one broker, empty at first; `tiered_broker.bootstrap` is where clients connect.

    Each test has its own unless the ini option `tiered_broker_scope` says otherwise.
    """
    with cluster(**{**tiered_broker_options, **_marked(request)}) as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getini(SCOPE) != "function" and item.get_closest_marker(MARK) is not None:
        raise pytest.UsageError(
            f"@pytest.mark.{MARK} cannot change a broker that is shared ({SCOPE}={item.config.getini(SCOPE)}): use the "
            "fixture tiered_cluster in this test, or tiered_broker_options in conftest.py"
        )


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    mark = request.node.get_closest_marker(MARK)
    if mark is None:
        return {}
    if mark.args:
        raise pytest.UsageError(f"@pytest.mark.{MARK} takes keywords only, those of tiered.testing.cluster()")
    return cast("dict[str, Any]", mark.kwargs)


@pytest.fixture
def tiered_cluster() -> Iterator[Callable[..., LocalCluster]]:
    """Starts clusters with the options of `tiered.testing.cluster()`; all of them end with the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> LocalCluster:
            return stack.enter_context(cluster(**options))

        yield start

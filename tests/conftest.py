"""What every test shares: Hypothesis's budget, how rarely garbage is looked for, and the tools that must be there.

Owns no fixture of any room: those live beside their tests. A missing tool fails a test, it never skips it.
"""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import traceback
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# Plugins that tests also import by name: pytest rewrites their assertions only when it hears of them first.
pytest.register_assert_rewrite("tests.certificates", "tests.clients.three_brokers", "tests.postgres", "tests.support")

# Broker and Spark processes that tests start import the tree under test, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), str(ROOT / "spark"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# A broker that finds its bytecode starts in half the time, so whoever starts first leaves it behind.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Shells have what they start in the background ignore interrupts, and children inherit that: commands that tests
# interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No test ever speaks to a real account.
os.environ.setdefault("AWS_ACCESS_KEY_ID", "testing")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "testing")
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

hypothesis.settings.register_profile("default", max_examples=25, deadline=None, derandomize=True, print_blob=True)
# Of `make check`, which leaves the others to `make test`.
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True, print_blob=True)
# Of `make soak-tests`: other examples each time.
hypothesis.settings.register_profile("long", max_examples=500, deadline=None, print_blob=True)
hypothesis.settings.register_profile("fuzz", max_examples=20_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("TIERED_HYPOTHESIS_PROFILE", "default"))

GARBAGE = 50_000
"""So many more objects than before are looked at; by default 700 are."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and what they import stay until the end: the collector looks at them once, when all are there,
    and never again. At what tests make it looks less often than by default: that takes a tenth of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


# At its end an interpreter frees what its libraries would otherwise call leaks. No sooner: pytest's own last look for
# what nobody closed collects five times, which takes three seconds if all of it is looked at.
atexit.register(gc.unfreeze)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest's report, or where pytest cannot make one of what was raised, a plain one.

    What a signal raises, a time-out for one, may come from an instruction without a line, and then pytest 9.2 itself
    fails: the worker ends, and nobody hears which test it was.
    """
    try:
        return (yield)
    except Exception as error:
        raised = None if call.excinfo is None else call.excinfo.value
        words = "".join(traceback.format_exception(raised))
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"{words}\npytest cannot show it better: {error!r}",
            when="call" if call.when == "collect" else call.when,
            duration=call.duration,
        )


@pytest.fixture(scope="session")
def kcat() -> str:
    """The path of kcat: Debian's build is librdkafka 2.0, the oldest client that must work."""
    found = shutil.which("kcat")
    if found is None:
        pytest.fail("kcat is not on PATH: install it (Debian, Ubuntu: apt-get install kcat)", pytrace=False)
    return found


@pytest.fixture(scope="session")
def java() -> str:
    """The path of a Java 17 or newer, which Spark needs."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        pytest.fail(
            "Java is not on PATH: Spark needs version 17 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)",
            pytrace=False,
        )
    first_line = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr.partition("\n")[
        0
    ]
    major = int(first_line.split('"')[1].partition(".")[0])
    if major < 17:
        pytest.fail(f"{found} is Java {major}: Spark needs 17 or newer", pytrace=False)
    return found

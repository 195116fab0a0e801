"""A broker has its objects from the C library, whose memory goes back to the system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tiered import allocator

FREED = """
import os
from tiered.server.garbage import _give_back

def rss_mib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

before = rss_mib()
names = [str(number) * 5 for number in range(500_000)]
most = rss_mib()
kept = names[::1000]
del names
_give_back()
print((rss_mib() - before) / (most - before))
"""


@pytest.mark.parametrize(("words", "has"), [("-uPYTHONMALLOC", "malloc"), ("PYTHONMALLOC=pymalloc", "pymalloc")])
def test_a_broker_begins_anew_with_the_c_librarys_allocator_unless_it_is_told_which_to_take(
    tmp_path: Path, words: str, has: str
) -> None:
    broker = BrokerProcess(tmp_path / "data", prefix=["env", words])
    try:
        broker.start()
        environ = Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
        assert f"PYTHONMALLOC={has}".encode() in environ
        assert broker.stop() == 0
    finally:
        broker.ensure_stopped()


def test_what_many_names_took_goes_back_to_the_system_though_a_few_of_them_stay() -> None:
    """Python's own allocator gives nothing back of what 500 of 500,000 names lie in."""
    shares = [
        float(subprocess.run([sys.executable, "-c", FREED], env=environ, capture_output=True, check=True).stdout)
        for environ in ({**os.environ, **allocator.ENVIRONMENT}, {**os.environ, "PYTHONMALLOC": "pymalloc"})
    ]
    assert shares[0] < 0.3
    assert shares[1] > 0.7

"""Nothing that is kept in this tree opens anything: no private keys, no tokens, no keys of clouds.

A private key or a token in a test is made by the test.
"""

import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 2 << 20
FORMS = {
    "private key": re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{40}"),
    "key of AWS": re.compile(r"A(?:KIA|SIA)[0-9A-Z]{16}\b"),
    "token of GitHub": re.compile(r"g(?:h[pousr]_[A-Za-z0-9]{36}|ithub_pat_[A-Za-z0-9_]{50,})"),
    "token of GitLab": re.compile(r"glpat-[A-Za-z0-9_-]{20}"),
    "token of Slack": re.compile(r"xox[abprs]-[A-Za-z0-9-]{20,}"),
    "token of PyPI": re.compile(r"pypi-[A-Za-z0-9_-]{50,}"),
    "signed token": re.compile(r"eyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
}
NAME = re.compile(r"""(?i)(?:secret|password|passwd|token|api_?key)\w*["']?\s*$""")
VALUE = re.compile(r"""[:=]\s*["']([A-Za-z0-9+/=_-]{20,})["']""")
LONGEST_NAME = 200
DRAWN_BITS = 3.9
"""Of a character: what somebody typed has less, what a machine drew has more."""


def entropy(text: str) -> float:
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def secrets_in(text: str) -> Iterator[str]:
    """What kind of secret, and where it begins."""
    for kind, form in FORMS.items():
        for found in form.finditer(text):
            yield f"{kind}: {found.group(0)[:12]}…"
    # Values first: they are few, and names without regard to case take long to look for.
    for found in VALUE.finditer(text):
        name = NAME.search(text, max(0, found.start() - LONGEST_NAME), found.start())
        if name and entropy(found.group(1)) > DRAWN_BITS:
            yield f"something drawn by chance: {name.group(0) + found.group(0):.24}…"


def kept_files() -> list[Path]:
    """All that git keeps, and what it would if it were added now."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:  # No checkout: an archive of one.
        return [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_file_holds_a_secret() -> None:
    found = {}
    for path in kept_files():
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_BYTES:
            secrets = list(secrets_in(path.read_bytes().decode("utf-8", "replace")))
            if secrets:
                found[path.relative_to(ROOT).as_posix()] = secrets
    assert not found, f"take these away, and make them worthless where they were used: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN " + "RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA" * 4,
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "glpat-" + "x1Y2" * 5,
        "eyJ" + "hbGciOiJIUzI1NiJ9xyz.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n",
        'password = "' + "q8Zr2LxV9tKbYw3MnPd7" + '"',
    ],
)
def test_a_secret_is_seen(text: str) -> None:
    assert list(secrets_in(f"before\n{text}\nafter"))


@pytest.mark.parametrize(
    "text", ['password = "correct-horse-battery"', "secret_key = os.environ['X']", "sasl.password=file:/run/secret"]
)
def test_what_opens_nothing_is_no_secret(text: str) -> None:
    assert not list(secrets_in(text))

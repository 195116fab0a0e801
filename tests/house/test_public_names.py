"""What users may build on is what it was: every name stands in tests/golden/public_names.txt, and no other.

A line that goes breaks somebody's script. A line that comes is promised from then on.
"""

from tests.house.public_names import GOLDEN, text


def test_what_users_build_on_is_what_it_was() -> None:
    now, before = text().splitlines(), GOLDEN.read_text().splitlines()
    gone, new = ([name for name in these if name not in those] for these, those in ((before, now), (now, before)))
    assert not gone, f"somebody's script breaks; if that is meant, `make generated` takes them out: {gone}"
    assert not new, f"promised from now on; if that is meant, `make generated` puts them in: {new}"

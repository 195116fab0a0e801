"""Where the memory of a broker's objects comes from: the C library, and not Python's own allocator.

Owns the variable of the environment that chooses it, which Python reads once, at its start. Python's allocator gives a
MiB back when nothing in it is in use: of 140 MiB that requests of 100,000 names had taken, 100 stayed for good
(docs/adr/0034). glibc gives back every page that is free. Must import next to nothing: every start pays for it.
"""

import os
import sys
from typing import Final

ENVIRONMENT: Final = {"PYTHONMALLOC": "malloc"}
"""Whoever starts a broker as a process of its own adds this, so that it need not begin anew."""


def begin_anew_with_it() -> None:
    """This process runs its command line once more, with the C library's allocator. Returns where it has that already,
    where the environment names another one, and where the C library is not glibc."""
    is_glibc = "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", ())
    has_own = "t" in getattr(sys, "abiflags", "")  # Without the interpreter's lock Python takes no other one.
    if "PYTHONMALLOC" in os.environ or sys.flags.dev_mode or has_own or not is_glibc or not sys.executable:
        return
    words = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, words, {**os.environ, **ENVIRONMENT})  # noqa: S606 - this very command, and no other

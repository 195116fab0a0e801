"""The areas `program`, `limits` and `clock`: this interpreter, what the system allows it, and its clocks.

Reads /proc and asks the kernel. Changes nothing.
"""

import ctypes
import errno
import importlib
import os
import platform
import resource
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import tiered
from tiered.cli.doctor.findings import CheckResult, Situation, fail, ok, warn
from tiered.cli.output import in_bytes, in_utc
from tiered.config.addresses import host_and_port
from tiered.errors import TieredError
from tiered.runtime import SystemClock

ENOUGH_FILES = 65_536
FEWEST_FILES = 1_024
ENOUGH_MEMORY_BYTES = 512 << 20
ENOUGH_MAPS = 65_530
FIRST_PLAUSIBLE_MS = 1_735_689_600_000
"""2025 began: a clock before that was never set."""

_STA_UNSYNC = 0x0040
_TIME_ERROR = 5
_CLOCK_MAXERROR_WARN_US = 1_000_000


def program(situation: Situation) -> Iterator[CheckResult]:
    """The interpreter and the packages that these options need."""
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform == "linux":
        yield ok("python", f"tiered {tiered.__version__}, {python}", tiered=tiered.__version__)
    else:
        yield warn("python", f"tiered {tiered.__version__}, {python}", "Run brokers on Linux: nothing else is tested.")
    yield _decoder()
    options = situation.options
    if options.meta_url.startswith("postgresql") and find_spec("psycopg") is None:
        yield fail("driver", "--meta is PostgreSQL and psycopg is missing", "Run `pip install 'psycopg[binary]'`.")
    if options.store_url.startswith("s3:") and find_spec("boto3") is None:
        yield fail("driver", "--store is S3 and boto3 is missing", "Run `pip install boto3`.")


def _decoder() -> CheckResult:
    try:
        library = importlib.import_module("tiered.formats.native").load()
    except (TieredError, OSError) as error:
        return warn("decoder", f"the native decoder does not load: {error}", "Install the package anew here.")
    if library is None:
        return warn(
            "decoder",
            "there is no native decoder here; records are decoded in Python, many times slower in replays",
            "Install a C compiler (gcc, python3-dev) and then the package anew; brokers do without.",
            native=False,
        )
    return ok("decoder", "the native decoder is there", native=True)


def limits(situation: Situation) -> Iterator[CheckResult]:
    """Open files, memory, mappings and every port."""
    yield _open_files()
    yield from _memory()
    maps = _number_in("/proc/sys/vm/max_map_count")
    if maps is not None and maps < ENOUGH_MAPS:
        advice = f"Raise it: `sysctl -w vm.max_map_count={ENOUGH_MAPS}`."
        yield warn("max_map_count", f"vm.max_map_count is {maps}, lower than usual", advice, max_map_count=maps)
    options = situation.options
    for each in options.listeners:
        # `--kafka` is one; others may come from a file, where `_port`'s advice would be no option.
        option = each.option if each.option.startswith("--") else "--listener"
        yield _port(f"{option} {each.name}" if len(options.listeners) > 1 else option, each.host, each.port)
    yield _port("--http", options.http_host, options.http_port)


def _open_files() -> CheckResult:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A broker raises the soft limit to the hard one.
    highest = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    says = "unlimited" if hard == resource.RLIM_INFINITY else f"{highest:,}"
    advice = f"Raise it to {ENOUGH_FILES}: LimitNOFILE= in systemd, --ulimit nofile= in Docker, limits.conf elsewhere."
    if highest < FEWEST_FILES:
        return fail("open files", f"open files are limited to {says}: too few for a broker", advice, limit=highest)
    if highest < ENOUGH_FILES:
        message = f"open files are limited to {says}; segments and connections need one each"
        return warn("open files", message, advice, limit=highest)
    return ok("open files", f"open files are limited to {says}", limit=highest)


def _memory() -> Iterator[CheckResult]:
    available = _meminfo("MemAvailable")
    bound = _number_in("/sys/fs/cgroup/memory.max")
    used = _number_in("/sys/fs/cgroup/memory.current")
    if bound is not None and used is not None:
        available = min(available if available is not None else sys.maxsize, max(0, bound - used))
    if available is None:
        return
    message = f"{in_bytes(available)} of memory are available, to {os.cpu_count()} cores"
    if available < ENOUGH_MEMORY_BYTES:
        advice = f"Give it {in_bytes(ENOUGH_MEMORY_BYTES)} or more: buffers of fetches and uploads need them at peaks."
        yield warn("memory", message, advice, available_bytes=available)
    else:
        yield ok("memory", message, available_bytes=available)


def _meminfo(name: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{name}:")]
    return int(found[0][1]) << 10 if found else None


def _number_in(path: str) -> int | None:
    """The number in a file of the kernel; None for "max", and where there is no such file."""
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _port(option: str, host: str, port: int) -> CheckResult:
    where = host_and_port(host, port)
    if port == 0:
        return ok(option, f"{option} takes any free port")
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return fail(option, f"{host} is no address here: {error.strerror}", f"Name another with {option} HOST:PORT.")
    with socket.socket(family, kind, number) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            return _not_bound(option, where, port, error)
    return ok(option, f"{where} is free", in_use=False)


def _not_bound(option: str, where: str, port: int, error: OSError) -> CheckResult:
    if error.errno != errno.EADDRINUSE:
        advice = f"Choose an address of this machine, and a port from 1024 on: {option} HOST:PORT."
        return fail(option, f"cannot listen on {where}: {error.strerror}", advice)
    user = user_of(port)
    if user is not None and "tiered" in user:
        return ok(option, f"{where} is in use by a broker: {user}", in_use=True)
    return warn(
        option,
        f"{where} is in use" + (f" by {user}" if user else " by another process"),
        f"If that is no broker of yours, end it or choose another address with {option} HOST:PORT.",
        in_use=True,
    )


def user_of(port: int) -> str | None:
    """The process that listens on the TCP port, as `name (process N)`; None where that cannot be seen."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # 0A is LISTEN
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(_target(each) in inodes for each in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                # Its name and what it runs, and nothing else: arguments may hold secrets.
                shown = [Path(words[0]).name, *(word for word in words[1:4] if "tiered" in word or word == "serve")]
                return f"{' '.join(shown)} (process {process.name})"
        except OSError:
            continue
    return None


def _target(link: Path) -> str:
    """The target of an open descriptor; empty when it was closed meanwhile."""
    try:
        return str(link.readlink())
    except OSError:
        return ""


class _Timex(ctypes.Structure):
    """The kernel's `struct timex`; only the fields in front matter."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 40),
    )


def clock(situation: Situation) -> Iterator[CheckResult]:
    """Whether this machine's clock was set, and is held to others'."""
    del situation
    now_ms = SystemClock().now_ms()
    if now_ms < FIRST_PLAUSIBLE_MS:
        advice = "Set it: retention goes by timestamps, and object stores refuse requests of another time."
        yield fail("time", f"this machine's clock says {in_utc(now_ms)}", advice, now_ms=now_ms)
        return
    timex = _Timex(modes=0)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        state = -1
    if state < 0:
        yield ok("time", f"the clock says {in_utc(now_ms)}; the kernel does not say whether it is synchronised")
    elif state == _TIME_ERROR or timex.status & _STA_UNSYNC:
        yield warn(
            "time",
            f"the clock says {in_utc(now_ms)}, and the kernel knows of nobody who keeps it right",
            "Run chrony or systemd-timesyncd (in a container: on the host). Timestamps and retention go by it.",
            synchronised=False,
        )
    else:
        off_ms = timex.maxerror / 1000
        message = f"the clock is synchronised, off by {off_ms:.0f} ms at most"
        if timex.maxerror > _CLOCK_MAXERROR_WARN_US:
            advice = "See `chronyc tracking` or `timedatectl`: its servers seem to be out of reach."
            yield warn("time", message, advice, synchronised=True, max_error_ms=off_ms)
        else:
            yield ok("time", message, synchronised=True, max_error_ms=off_ms)

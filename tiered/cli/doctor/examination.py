"""The examination: area by area, each with a deadline, and the verdict as text or as JSON.

Owns the threads and the output. An area that hangs (as on a dead NFS mount) is left behind on its thread, and reported.
The output never holds a password or a key that this process was given.
"""

import argparse
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any
from urllib.parse import unquote

from tiered.cli.client.command_config import command_security
from tiered.cli.doctor import broker, disk, machine, sql, store
from tiered.cli.doctor.findings import Area, CheckResult, Situation, Status, fail
from tiered.cli.failure import EXIT_FAILED, EXIT_OK
from tiered.cli.output import counted, print_json, say
from tiered.config import ServeOptions, load_serve_options
from tiered.config.client_security import ClientSecurity
from tiered.errors import TieredError
from tiered.peer.security import PeerSecurity

AREA_TIMEOUT_S = 30.0
_TIDY_UP_S = 5.0
_PASSWORD = re.compile(r"//[^:/@]*:([^@/]+)@")
_SECRET_VARIABLES = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST_SECRET = 4
AREA_CHECKS: Mapping[str, Area] = {
    "program": machine.program, "limits": machine.limits, "clock": machine.clock, "disk": disk.disk, "sql": sql.sql,
    "store": store.store, "broker": broker.broker,
}  # fmt: skip
_COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def _security(arguments: argparse.Namespace, options: ServeOptions) -> PeerSecurity:
    """As told; else as other brokers enter the first listener, for that is the one that is asked."""
    first = options.listeners[0]
    if arguments.command_config is not None or arguments.bootstrap is not None or first.tls is None:
        return command_security(arguments.command_config)
    return PeerSecurity(ClientSecurity(protocol=first.protocol, tls=first.tls.material, checks_host_name=False))


def run(arguments: argparse.Namespace) -> int:
    """Examines and tells; 1 when a check failed. Raises InvalidConfig for options that make no sense."""
    options = load_serve_options(arguments, os.environ)
    situation = Situation(
        options=options,
        bootstrap=arguments.bootstrap,
        may_write=arguments.write,
        security=_security(arguments, options),
        http_url=os.environ.get("TIERED_HTTP_URL") or None,
    )
    hide = hiding(secrets_of([options.meta_url, options.store_url], os.environ))
    found: list[tuple[str, CheckResult]] = []
    for name, area in AREA_CHECKS.items():
        if arguments.only and name not in arguments.only:
            continue
        with _waiting_for(name):
            results = [
                replace(each, message=hide(each.message), advice=each.advice and hide(each.advice))
                for each in examined(area, situation)
            ]
        found += [(name, each) for each in results]
        if not arguments.json:
            _show(name, results)
    failed = sum(each.status is Status.FAIL for _, each in found)
    warned = sum(each.status is Status.WARN for _, each in found)
    if arguments.json:
        checks = [_as_json(name, each) for name, each in found]
        print_json({"ok": failed == 0, "failed": failed, "warned": warned, "checks": checks})
    else:
        say(f"\n{_verdict(len(found), failed, warned)}")
    return EXIT_FAILED if failed else EXIT_OK


def _verdict(checks: int, failed: int, warned: int) -> str:
    if failed:
        return f"{failed} of {counted(checks, 'check')} failed; {counted(warned, 'warning')}"
    return f"{counted(checks, 'check')}, none failed; {counted(warned, 'warning')}"


def examined(area: Area, situation: Situation, *, timeout_s: float = AREA_TIMEOUT_S) -> list[CheckResult]:
    """The area's findings within `timeout_s`. An error from outside is a finding; a bug is raised."""
    found: list[CheckResult] = []
    bugs: list[BaseException] = []

    stop = threading.Event()

    def look() -> None:
        try:
            for each in area(situation):
                found.append(each)
                if stop.is_set():
                    break
        except (TieredError, OSError) as error:
            found.append(fail("error", f"this could not be looked at: {error}", "See what the message names."))
        except BaseException as error:  # noqa: BLE001 - raised again below, where somebody waits for it.
            bugs.append(error)

    thread = threading.Thread(target=look, name="doctor", daemon=True)
    thread.start()
    try:
        thread.join(timeout_s)
    except KeyboardInterrupt:
        stop.set()  # The area removes what it has written before the command ends.
        thread.join(_TIDY_UP_S)
        raise
    if bugs:
        raise bugs[0]
    results = list(found)
    if thread.is_alive():
        after = f" after {results[-1].check!r}" if results else ""
        advice = "Something below does not answer: a network file system, a name server, or a firewall that drops."
        results.append(fail("time", f"this hangs{after}: no result within {timeout_s:g} s", advice))
    return results


def secrets_of(urls: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The texts that must not be shown: passwords in URLs, written both ways, and those of the environment."""
    found = [match for url in urls for match in _PASSWORD.findall(url)]
    found += [unquote(each) for each in found]
    # A password of a letter or two is part of many words: it is hidden only where it stands as one.
    found = [each if len(each) >= _SHORTEST_SECRET else f":{each}@" for each in found]
    found += [environ[name] for name in _SECRET_VARIABLES if len(environ.get(name, "")) >= _SHORTEST_SECRET]
    return sorted(set(found), key=len, reverse=True)


def hiding(secrets: Sequence[str]) -> Callable[[str], str]:
    """The text that replaces a secret."""
    return lambda text: reduce(lambda shown, secret: shown.replace(secret, "***"), secrets, text)


def _as_json(area: str, finding: CheckResult) -> dict[str, Any]:
    return {
        "area": area,
        "check": finding.check,
        "status": finding.status.value,
        "message": finding.message,
        "advice": finding.advice,
        "measured": {
            name: round(value, 3) if isinstance(value, float) else value for name, value in finding.measured.items()
        },
    }


@contextmanager
def _waiting_for(area: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"looking at {area} ..."):
        yield


def _show(area: str, results: Sequence[CheckResult]) -> None:
    """Writes findings to stdout: coloured and wrapped on a terminal, one line each in a pipe."""
    if not sys.stdout.isatty():
        for each in results:
            say(f"{each.status.value:<4}  {area:<7}  {each.message}{f' -> {each.advice}' if each.advice else ''}")
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4)
    table.add_column(width=7)
    table.add_column(overflow="fold")
    for each in results:
        says = Text(each.message)
        if each.advice:
            says.append(f"\n{each.advice}", style="bold")
        table.add_row(Text(each.status.value, style=f"bold {_COLOURS[each.status]}"), Text(area), says)
    Console().print(table)

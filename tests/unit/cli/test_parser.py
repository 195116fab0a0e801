"""What is typed wrong is said at once, with exit code 2 and without loading what no command asked for."""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

import tiered
from tiered.cli import build_parser, main
from tiered.cli.arguments import Parser
from tiered.cli.configs import config_pairs
from tiered.cli.failure import UsageError
from tiered.cli.records.offset_range import End, Start, range_of
from tiered.runtime import SystemClock


@pytest.fixture(scope="module", autouse=True)
def built_once() -> Iterator[None]:
    """`main` gets the same parser each time: building it takes ten times as long as parsing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["tiered.cli.main"], "build_parser", parser)
        yield


@cache
def parser() -> argparse.ArgumentParser:
    return build_parser()


def run(argv: Sequence[str]) -> int:
    try:
        return main(argv)
    except SystemExit as ended:
        return int(str(ended.code))


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tiered {tiered.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["topics"]])
def test_no_command_shows_the_help_and_is_a_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: " + " ".join(["tiered", *argv]))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nope"], "invalid choice: 'nope'"),
        (["serve", "--nope"], "tiered serve: unrecognized arguments: --nope; see `tiered serve --help`"),
        (["serve", "--kafka", "nope"], "--kafka=nope is not allowed"),
        (["serve", "--set", "background.threads=few"], "background.threads=few is not allowed"),
        (["serve", "--brok", "1"], "unrecognized arguments: --brok"),
        (["topics", "create"], "the following arguments are required: TOPIC"),
        (["topics", "create", "t", "-p", "0"], "argument -p/--partitions: 0 is too few"),
        (["topics", "create", "t", "-p", "x"], "x is no whole number"),
        (["topics", "create", "t", "-p", "2147483648"], "is no whole number from 0 to 2147483647"),
        (["topics", "create", "t", "-c", "x"], "--config 'x' is not allowed: it must be KEY=VALUE"),
        (["topics", "create", "t", "-c", "a=1", "-c", "a=2"], "--config a is given twice"),
        (["topics", "create", "t", "-c", "retention.ms=7x"], "write a whole number, or one with ms, s, m, h, d, w"),
        (["serve", "--set", "log.segment.bytes=1G"], "write a whole number, or one with B, KiB, MiB, GiB, TiB"),
        (["topics", "alter", "t"], "nothing to alter"),
        (["topics", "alter", "t", "-c", "a=1", "--delete-config", "a"], "a cannot be set and deleted at once"),
        (["topics", "list", "-b", "nope:x"], "--bootstrap nope:x is not allowed"),
        (
            ["topics", "list", "-b", "http://h:9092/x"],
            "is a URL, and brokers have none; write h:9092",
        ),
        (["topics", "list", "-b", "PLAINTEXT://"], "is a URL, and brokers have none; write host:port"),
        (["segments", "t", "--http", "ftp://x"], "--http ftp://x is not allowed"),
        (["segments", "t", "--http", "http://x:y"], "--http http://x:y is not allowed"),
        (["produce", "t", "/no/such/file"], "cannot read /no/such/file: No such file"),
        (["produce", "t", "-H", "=x"], "--header '=x' is not allowed"),
        (["produce", "t", "-H", "bad"], "--header 'bad' is not allowed: it must be NAME=VALUE"),
        (["produce", "t", "-k", ""], "--key-separator must not be empty"),
        (["produce", "t", "-z", "lzma"], "invalid choice: 'lzma'"),
        (["consume", "t", "-f", "-e"], "not allowed with argument"),
        (["consume", "t", "-o", "middle"], "--offset middle is not allowed"),
        (["consume", "t", "-c", "0"], "0 is too few"),
        (["consume", "t", "-o", "1:5", "-f"], "says where to end, which does not go together with --follow"),
        (["consume", "t", "-o", ":end", "-g", "g"], "says where to end, which does not go together with --group"),
    ],
)
def test_what_cannot_be_meant_is_one_line_that_names_it_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("tiered")
    assert captured.out == ""


def test_the_environment_names_brokers_and_options_override_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERED_BOOTSTRAP", "env:1")
    monkeypatch.setenv("TIERED_HTTP", "env:2")
    assert build_parser().parse_args(["topics", "list"]).bootstrap == "env:1"
    assert build_parser().parse_args(["topics", "list", "-b", "x:3"]).bootstrap == "x:3"
    assert build_parser().parse_args(["segments", "t"]).http == "env:2"
    monkeypatch.setenv("TIERED_HTTP_URL", "https://env:3")
    assert build_parser().parse_args(["segments", "t"]).http == "https://env:3"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(offset=-2)),
        ("end", Start(before_end=0)),
        ("0", Start(offset=0)),
        ("12", Start(offset=12)),
        ("-5", Start(before_end=5)),
        ("-0", Start(before_end=0)),
        ("@1769903999123", Start(timestamp_ms=1_769_903_999_123)),
        ("@2026-01-31T23:59:59.123Z", Start(timestamp_ms=1_769_903_999_123)),
        ("@2026-01-31T23:59:59.123", Start(timestamp_ms=1_769_903_999_123)),
        ("@2026-02-01T00:59:59.123+01:00", Start(timestamp_ms=1_769_903_999_123)),
    ],
)
def test_offsets_are_understood(text: str, start: Start) -> None:
    assert range_of(text) == (start, None)


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["produce", "t", "-k", ":", "file"], "file", "file"),
        (["produce", "-k", ":", "t", "-p", "1", "file", "--json"], "file", "file"),
        (["produce", "t", "-k", ":"], "file", None),
        (["produce", "-k", ":", "--", "t", "-file"], "file", "-file"),
        (["topics", "create", "a", "-p", "3", "b", "c"], "topics", ["a", "b", "c"]),
        (["topics", "create", "a", "-r", "3", "b"], "replication_factor", 3),
        (["topics", "describe", "a", "--json", "b"], "topics", ["a", "b"]),
        (["topics", "delete", "a", "--if-exists", "b"], "topics", ["a", "b"]),
        (["topics", "reassign", "a", "--to", "1,2", "b:0"], "topics", ["a", "b:0"]),
        (["topics", "elect", "a", "--json", "b"], "topics", ["a", "b"]),
        (["groups", "describe", "a", "--json", "b"], "groups", ["a", "b"]),
        (["groups", "delete", "a", "--if-exists", "b"], "groups", ["a", "b"]),
        (["brokers", "describe", "1", "--json", "2"], "brokers", [1, 2]),
        (["brokers", "describe", "--json"], "brokers", []),
        (["brokers", "drain", "1", "--to", "3", "2"], "brokers", [1, 2]),
        (["snapshot", "list", "--json", "t"], "topic", "t"),
        (["snapshot", "delete", "a", "--json", "b"], "names", ["a", "b"]),
        (["quotas", "set", "a=1", "--user", "x", "b=2"], "user", "x"),
        (["quotas", "remove", "a", "--user", "x", "b"], "quotas", ["a", "b"]),
    ],
)
def test_options_stand_anywhere_among_the_words(argv: list[str], name: str, value: object) -> None:
    assert getattr(parser().parse_args(argv), name) == value


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["-b", "x:3", "topics", "list"], "bootstrap", "x:3"),
        (["topics", "-b", "x:3", "list"], "bootstrap", "x:3"),
        (["-bx:3", "produce", "t", "-k", ":", "file"], "bootstrap", "x:3"),
        (["--bootstrap=x:3", "brokers", "config", "show", "a", "--json", "b"], "bootstrap", "x:3"),
        (["--command-config", "c", "-b", "x:3", "consume", "t", "--", "u"], "command_config", "c"),
        (["--http", "x:4", "segments", "t"], "http", "x:4"),
        (["-b", "x:3", "topics", "list", "-b", "y:4"], "bootstrap", "y:4"),
        (["-b", "list", "topics", "list"], "bootstrap", "list"),
    ],
)
def test_which_broker_to_ask_may_be_said_before_the_command(argv: list[str], name: str, value: str) -> None:
    arguments = parser().parse_args(argv)
    assert getattr(arguments, name) == value
    assert arguments.run is not None


@pytest.mark.parametrize(
    ("argv", "refusal"),
    [
        (["-b", "x:3", "segments", "t"], "tiered segments: unrecognized arguments: -b"),
        (["--http", "x:4", "topics", "list"], "tiered topics list: unrecognized arguments: --http"),
        (["-b", "x:3", "topcs"], "invalid choice: 'topcs'"),
        (["-b"], "argument -b/--bootstrap: expected one argument"),
        (["-q", "topics", "list"], "unrecognized arguments: -q"),
        (["-b", "x:3", "--json", "topics", "list"], "--json belongs behind the command"),
    ],
)
def test_what_the_command_does_not_take_is_refused_before_it_too(
    argv: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert refusal in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["topics"], ["topics", "--help"], ["--help"]])
def test_what_is_missing_and_the_help_are_the_same_with_connection_options_before(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run(words), capsys.readouterr()
    assert (run(["-b", "x:3", *words]), capsys.readouterr()) == plain
    assert (run([*words[:1], "-b", "x:3", *words[1:]]), capsys.readouterr()) == plain


def test_options_that_nobody_knows_are_refused_among_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["produce", "t", "--nope", "file"]) == 2
    assert "tiered produce: unrecognized arguments: --nope" in capsys.readouterr().err


def test_a_negative_offset_is_no_option() -> None:
    assert parser().parse_args(["consume", "t", "-o", "-10"]).offset == "-10"


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("100:200", Start(offset=100), End(offset=200)),
        (":200", Start(offset=-2), End(offset=200)),
        (":end", Start(offset=-2), End()),
        ("100:", Start(offset=100), None),
        ("-5:end", Start(before_end=5), End()),
        ("7:@2026-01-31T23:59:59.123Z", Start(offset=7), End(timestamp_ms=1_769_903_999_123)),
        ("@1:2", Start(timestamp_ms=1), End(timestamp_ms=2)),
        ("@1:end", Start(timestamp_ms=1), End()),
        (
            "@2026-01-31T23:59:59.123+00:00:@2026-02-01T00:59:59.124+01:00",
            Start(timestamp_ms=1_769_903_999_123), End(timestamp_ms=1_769_903_999_124),
        ),
    ],
)  # fmt: skip
def test_ranges_of_offsets_are_understood(text: str, start: Start, end: End) -> None:
    assert range_of(text) == (start, end)


def test_so_long_ago_is_a_time_too() -> None:
    before_ms = SystemClock().now_ms()
    start, end = range_of("@-2h:@-30m")
    took_ms = SystemClock().now_ms() - before_ms
    assert start.timestamp_ms is not None
    assert end is not None
    assert end.timestamp_ms is not None
    assert 0 <= start.timestamp_ms - (before_ms - 7_200_000) <= took_ms
    assert 0 <= end.timestamp_ms - (before_ms - 1_800_000) <= took_ms


@pytest.mark.parametrize(
    "text", ["", "-", "--5", "1.5", "@", "@yesterday", "9223372036854775808", "٣", "5:x", "@1:x", "@-2", "9:8"]
)
def test_offsets_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        range_of(text)


def test_a_config_may_hold_an_equals_sign() -> None:
    assert config_pairs(["a=b=c", " d = "]) == {"a": "b=c", "d": ""}


def test_the_parser_loads_nothing_that_a_command_needs() -> None:
    heavy = ("asyncio", "kio", "rich", "sqlalchemy", "aiohttp", "boto3", "cramjam", "json", "logging", "datetime")
    code = f"import sys, tiered.cli; tiered.cli.build_parser(); print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("45m", 2_700_000), ("30d", 2_592_000_000), ("1w", 604_800_000)]
)
def test_a_time_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parser().parse_args(["snapshot", "create", "s", "t", "--ttl", text]).ttl == ms


@pytest.mark.parametrize("text", ["", "5", "d", "0d", "-1d", "1.5h", "5y", "9999999d", "1 d"])
def test_what_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["snapshot", "create", "s", "t", f"--ttl={text}"])
    assert "such as 30d" in capsys.readouterr().err


def runs(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from runs(each)
    if (run := parser.get_default("run")) is not None:
        yield run


def test_each_command_names_a_function_that_is_there() -> None:
    named = list(runs(parser()))
    assert len(named) > 40
    for module, _, function in (each.partition(":") for each in named):
        assert callable(getattr(importlib.import_module(f"tiered.cli.{module}"), function))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["topic"], "topics"),
        (["topics", "crate"], "create"),
        (["produce", "t", "-z", "zst"], "zstd"),
        (["topics", "create", "orders", "--partitons", "3"], "--partitions"),
        (["topics", "create", "orders", "--partitons=3"], "--partitions"),
        (["serve", "--stor", "s3://b"], "--store"),
    ],
)
def test_a_mistyped_command_choice_or_option_gets_the_names_that_are_like_it(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert f"(did you mean {meant}" in capsys.readouterr().err


def test_a_mistyped_option_of_a_job_gets_the_names_that_are_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    job = Parser(prog="job.py")
    job.add_argument("--warehouse")
    with pytest.raises(SystemExit):
        job.parse_args(["--warehose", "x"])
    assert "unrecognized arguments: --warehose x (did you mean --warehouse?)" in capsys.readouterr().err

"""What `tiered serve` is told: options, environment and file, which of them wins, and refusals by name."""

import argparse
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tiered.cold.object_store import LocalAddress, parse_store_url
from tiered.config import (
    BrokerSettings,
    ConfigSource,
    TopicConfig,
    add_serve_arguments,
    describe_broker,
    load_serve_options,
)
from tiered.errors import InvalidConfig


def arguments(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    return parser.parse_args(argv)


def test_without_options_the_defaults_of_the_interface_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = load_serve_options(arguments(), {})
    assert (options.listeners[0].host, options.listeners[0].port) == ("127.0.0.1", 9092)
    assert (options.http_host, options.http_port) == ("127.0.0.1", 8080)
    assert (options.listeners[0].advertise_host, options.listeners[0].advertise_port) == (None, None)
    assert options.data_dir == tmp_path / "data"
    assert options.meta_url == f"sqlite:///{tmp_path}/data/meta.db"
    assert options.store_url == f"file://{tmp_path}/data/objects"
    assert (options.broker_id, options.log_format) == (1, "text")
    assert options.rack is None
    assert options.settings == BrokerSettings()


@pytest.mark.parametrize(
    ("argv", "environ", "toml", "read_only"),
    [
        (["--read-only"], {"TIERED_READ_ONLY": "false"}, {}, True),
        ([], {"TIERED_READ_ONLY": "true"}, {"read_only": False}, True),
        ([], {}, {"read_only": True}, True),
        ([], {}, {}, False),
    ],
)
def test_a_switch_is_a_flag_without_a_value(
    argv: list[str], environ: dict[str, str], toml: dict[str, object], read_only: bool
) -> None:
    assert load_serve_options(arguments(*argv), environ, toml).read_only is read_only


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="TIERED_READ_ONLY=maybe is not allowed: it must be true or false"):
        load_serve_options(arguments(), {"TIERED_READ_ONLY": "maybe"}, {})


def test_a_read_replica_with_a_catalogue_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="--meta names a metadata store, and a broker with --read-only has none"):
        load_serve_options(arguments("--read-only", "--meta", "sqlite:///x"), {}, {})


def test_data_folder_of_any_name_holds_its_own_catalogue_and_objects(tmp_path: Path) -> None:
    data = tmp_path / "a b%20#c?d"
    options = load_serve_options(arguments("--data", str(data)), {})
    assert options.data_dir == data
    assert make_url(options.meta_url).database == f"{data}/meta.db"
    assert parse_store_url(options.store_url) == LocalAddress(directory=data / "objects")


@pytest.mark.parametrize(
    ("argv", "environ", "toml", "port"),
    [
        (["--kafka", "localhost:1"], {"TIERED_KAFKA": "localhost:2"}, {"kafka": "localhost:3"}, 1),
        ([], {"TIERED_KAFKA": "localhost:2"}, {"kafka": "localhost:3"}, 2),
        ([], {}, {"kafka": "localhost:3"}, 3),
        ([], {}, {}, 9092),
        (["--kafka", "localhost:0"], {}, {}, 0),
    ],
)
def test_flag_wins_over_environment_over_file_over_default(
    argv: list[str], environ: dict[str, str], toml: dict[str, object], port: int
) -> None:
    assert load_serve_options(arguments(*argv), environ, toml).listeners[0].port == port


def test_settings_merge_one_by_one_in_the_same_order() -> None:
    options = load_serve_options(
        arguments("--set", "num.partitions=3", "--set", "log.segment.bytes=5000"),
        {"TIERED_SET": "num.partitions=2;message.max.bytes=77"},
        {"settings": {"num": {"partitions": 1}, "log.retention.ms": 9, "auto.create.topics.enable": False}},
    )
    settings = options.settings
    assert settings.topics.num_partitions == 3
    topic = TopicConfig.of({}, settings)
    assert (topic.max_message_bytes, topic.retention_ms) == (77, 9)
    assert settings.topics.auto_create_topics_enable is False
    assert {entry.source for entry in describe_broker(settings) if entry.name == "num.partitions"} == {
        ConfigSource.STATIC_BROKER
    }


def test_a_file_is_read_from_its_path_with_bare_and_quoted_keys(tmp_path: Path) -> None:
    file = tmp_path / "tiered.toml"
    file.write_text(
        'broker_id = 4\nrack = "r1"\n[settings]\nnum.partitions = 6\n"log.cleanup.policy" = ["compact", "delete"]\n'
    )
    options = load_serve_options(arguments(), {"TIERED_CONFIG": str(file)})
    assert (options.broker_id, options.rack, options.settings.topics.num_partitions) == (4, "r1", 6)
    assert TopicConfig.of({}, options.settings).cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("argv", "environ", "message"),
    [
        (["--kafka", "9092"], {}, "--kafka=9092 is not allowed: it must be HOST:PORT"),
        (["--kafka", "h:65536"], {}, "--kafka=h:65536"),
        (["--kafka", "::1:9092"], {}, "--kafka=::1:9092"),
        (["--advertise", "h:0"], {}, "--advertise=h:0"),
        ([], {"TIERED_HTTP": "h:x"}, "TIERED_HTTP=h:x"),
        (["--broker-id", "-1"], {}, "--broker-id=-1"),
        (["--broker-id", "2147483648"], {}, "--broker-id=2147483648"),
        (["--log-format", "xml"], {}, "--log-format=xml .* one of text, json"),
        (["--store", "gs://bucket"], {}, "--store is gs://…: .* file:// or s3://"),
        (["--meta", "meta.db"], {}, "--meta is a text without ://"),
        (["--set", "num.partitions"], {}, "--set 'num.partitions' .* KEY=VALUE"),
        (["--set", "listeners=PLAINTEXT://:9092"], {}, "listeners is no setting here: it is the option --listener"),
        (["--set", "num.partitions=0"], {}, "num.partitions=0 is not allowed"),
        (["--set", "background.threads=few"], {}, "background.threads=few is not allowed"),
        (["--config", "/does/not/exist"], {}, "/does/not/exist"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    argv: list[str], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load_serve_options(arguments(*argv), environ)


def test_an_unknown_key_in_the_file_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="unknown key 'kafak'"):
        load_serve_options(arguments(), {}, {"kafak": "h:1"})


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidConfig) as refused:
        load_serve_options(arguments("--meta", "mysql://u:secret@h/db"), {})
    assert "secret" not in str(refused.value)


def test_ipv6_needs_its_brackets() -> None:
    options = load_serve_options(arguments("--kafka", "[::1]:9092"), {})
    assert (options.listeners[0].host, options.listeners[0].port) == ("::1", 9092)

"""The compose files and the runner agree with each other and with what a broker takes. No container is started."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiered.config.serve import load_serve_options
from tiered.config.topic import TopicConfig

ROOT = Path(__file__).resolve().parents[2]
FILES = ("localstack/compose.yml", "deploy/compose.yml")
BROKERS = ("broker-1", "broker-2", "broker-3")


def services(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())["services"]
    return loaded


@pytest.mark.parametrize("path", FILES)
def test_everything_is_published_on_loopback_alone(path: str) -> None:
    ports = [port for each in services(path).values() for port in each.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert len({port.rsplit(":", 1)[0] for port in ports}) == len(ports)


def test_each_broker_of_the_compose_file_is_configured_as_brokers_are() -> None:
    told = services("deploy/compose.yml")
    options = [
        load_serve_options(argparse.Namespace(), {"TIERED_DATA": "/var/lib/tiered", **told[name]["environment"]})
        for name in BROKERS
    ]
    assert [each.broker_id for each in options] == [1, 2, 3]
    assert len({each.rack for each in options}) == 3
    for name, each in zip(BROKERS, options, strict=True):
        assert (each.inter_broker.advertise_host, each.inter_broker.advertise_port) == (name, each.inter_broker.port)
        clients = next(listener for listener in each.listeners if listener.name == "CLIENTS")
        assert f"{clients.advertise_host}:{clients.advertise_port}:{clients.port}" in told[name]["ports"]
        assert f":{each.http_port}" in " ".join(told[name]["ports"])
        assert each.settings.topics.default_replication_factor == 3
        assert TopicConfig.of({}, each.settings).min_insync_replicas == 2
        assert each.data_dir == Path(told[name]["volumes"][0].partition(":")[2])


def test_the_bucket_of_the_brokers_is_the_one_that_is_made() -> None:
    made = services("localstack/compose.yml")["localstack"]["environment"]["TIERED_BUCKET"]
    stores = {services("deploy/compose.yml")[name]["environment"]["TIERED_STORE"] for name in BROKERS}
    assert [store.startswith(f"s3://{made}/") for store in stores] == [True]
    assert services("deploy/compose.yml")["localstack"]["extends"] == {
        "file": "../localstack/compose.yml", "service": "localstack"
    }  # fmt: skip


def test_the_container_and_the_runner_are_the_same_localstack() -> None:
    image = services("localstack/compose.yml")["localstack"]["image"]
    pinned = (ROOT / "localstack/requirements.txt").read_text().splitlines()
    assert f"localstack-core=={image.rpartition(':')[2]}" in pinned
    assert [line for line in pinned if "==" not in line and not line.startswith("#")] == []


def test_what_compose_files_mount_and_build_exists() -> None:
    (mounted,) = services("localstack/compose.yml")["localstack"]["volumes"]
    assert [each.name for each in (ROOT / "localstack" / mounted.split(":")[0]).iterdir() if each.is_file()] == [
        "make_bucket.py"
    ]
    build = services("deploy/compose.yml")["broker-1"]["build"]
    assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).is_file()

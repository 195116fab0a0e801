"""What Terraform renders for a machine makes a broker: three of them are a cluster, and one is replaced.

Needs the program terraform and no provider: the user data are rendered by a module without resources.
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker_process import free_port
from tests.certificates import Authority, Shown
from tests.fault_s3.moto_server import BUCKET, moto_s3, store_url
from tests.terraform.installed import ROOT, WorkingCopy
from tests.terraform.machines import Machine

pytest_plugins = ["tests.postgres"]
pytestmark = [pytest.mark.terraform, pytest.mark.timeout(600)]

WHERE = "terraform/modules/brokers/user-data"
BROKERS = (1, 2, 3)
RECORDS = 200
PASSWORD = "a password of alice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What outlives every machine, and the user data of each broker."""

    folder: Path
    terraform: WorkingCopy
    inputs: dict[int, dict[str, Any]]
    operator: Shown
    authority: Authority
    environ: dict[str, str]

    def render(self, broker: int, root: Path) -> str:
        """The user data, as Terraform writes it for the launch template."""
        given = self.folder / f"broker-{broker}.tfvars.json"
        given.write_text(json.dumps({**self.inputs[broker], "root": str(root)}))
        state = f"-state={self.folder}/broker-{broker}-{root.name}.tfstate"
        self.terraform.run(WHERE, "apply", "-auto-approve", "-input=false", state, f"-var-file={given}")
        return self.terraform.run(WHERE, "output", "-raw", state, "script").stdout

    def machine(self, broker: int, generation: int) -> Machine:
        """A new one, with the broker's volume plugged in where an earlier machine has left something on it."""
        root = self.folder / f"machine-{broker}-{generation}"
        made = Machine(root, volume_id=f"vol-{broker}", environ=self.environ)
        if generation > 1:
            before = self.folder / f"machine-{broker}-{generation - 1}"
            device = f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol{broker}"
            shutil.copytree(before / "var/lib/tiered", root / "var/lib/tiered")
            shutil.copy(before / device, root / device)
        made.boot(self.render(broker, root))
        return made

    def client(self, kind: str) -> dict[str, Any]:
        """Settings of a stock client: of an operator with a certificate, or of alice with a password."""
        ports = "internal" if kind == "operator" else "clients"
        common = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{self.inputs[broker]['ports'][ports]}" for broker in BROKERS),
            "ssl.ca.location": str(self.authority.pem),
            "log_level": 0,
        }
        if kind == "operator":
            return common | {
                "security.protocol": "SSL",
                "ssl.certificate.location": str(self.operator.chain),
                "ssl.key.location": str(self.operator.key),
            }
        return common | {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }  # fmt: skip


@pytest.fixture(scope="module")
def catalogue(request: pytest.FixtureRequest) -> Iterator[str]:
    databases = request.getfixturevalue("postgres_databases")
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture(scope="module")
def site(terraform: WorkingCopy, catalogue: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    authority = Authority(folder / "authority")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("database-ca.pem"))
    with moto_s3() as endpoint:
        session: Any = boto3.session.Session(region_name="us-east-1")
        session.client("s3", endpoint_url=endpoint).put_object(Bucket=BUCKET, Key="r.tar.gz", Body=archive.getvalue())
        secrets = session.client("secretsmanager", endpoint_url=endpoint)

        def kept(name: str, value: str) -> str:
            arn: str = secrets.create_secret(Name=name, SecretString=value)["ARN"]
            return arn

        trusted = kept("authority", authority.pem.read_text())
        database = kept("database", json.dumps({"username": "tiered", "password": "a:b\\c"}))
        inputs = {
            broker: {
                "cluster": "test", "region": "us-east-1", "broker_id": broker, "rack": f"zone-{broker}",
                "host": "127.0.0.1", "bind_address": "127.0.0.1",
                "ports": {"internal": free_port(), "clients": free_port(), "http": free_port()},
                "meta_url": catalogue, "store_url": store_url(endpoint, "cluster"),
                "secrets": {
                    "certificate": kept(f"broker-{broker}", authority.sign(f"broker-{broker}").both.read_text()),
                    "authority": trusted, "database": database,
                },
                "volume_id": f"vol-{broker}", "interface_id": f"eni-{broker}",
                "release": {
                    "version": "0.1.0", "uri": f"s3://{BUCKET}/r.tar.gz",
                    "sha256": hashlib.sha256(archive.getvalue()).hexdigest(),
                },
                "settings": {
                    "default.replication.factor": "3", "min.insync.replicas": "2", "tiered.authorizer": "acl",
                    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                    "tiered.broker.principals": "User:CN=broker-*,O=Example",
                    "super.users": "User:CN=operator,O=Example",
                },
            }
            for broker in BROKERS
        }  # fmt: skip
        terraform.init(WHERE)
        yield Site(
            folder=folder, terraform=terraform, inputs=inputs, operator=authority.sign("operator"),
            authority=authority, environ={"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"},
        )  # fmt: skip


@pytest.fixture(scope="module")
def machines(site: Site) -> Iterator[dict[int, Machine]]:
    """The machines that run now; a test that replaces one puts the new one here."""
    running: dict[int, Machine] = {}
    try:
        for broker in BROKERS:
            running[broker] = site.machine(broker, 1)
        for machine in running.values():
            machine.wait_ready()
        yield running
    finally:
        for machine in running.values():
            machine.stop()


def prepare_alice(site: Site) -> None:
    """An operator makes the topic, the user and what she may do."""
    admin = AdminClient(site.client("operator"))
    (made,) = admin.create_topics([NewTopic("orders", 3, 3)]).values()
    made.result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    (user,) = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("alice", info, PASSWORD.encode())]
    ).values()  # fmt: skip
    user.result(30)
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", what, AclPermissionType.ALLOW)
        for kind, name, what in (
            (ResourceType.TOPIC, "orders", AclOperation.WRITE),
            (ResourceType.TOPIC, "orders", AclOperation.READ),
            (ResourceType.GROUP, "readers", AclOperation.READ),
        )
    ]
    for answer in admin.create_acls(rules).values():
        answer.result(30)
    for broker in BROKERS:
        wait_until_known(site, broker)


def wait_until_known(site: Site, broker: int) -> None:
    """Until this broker has heard what alice may do: at once where it was asked, a moment later on the others."""
    address = f"127.0.0.1:{site.inputs[broker]['ports']['clients']}"
    deadline = time.monotonic() + 60
    while True:
        # A new client knows no other broker yet.
        seen = AdminClient({**site.client("alice"), "bootstrap.servers": address}).list_topics("orders", timeout=30)
        if seen.topics["orders"].error is None:
            return
        assert time.monotonic() < deadline, seen.topics["orders"].error
        time.sleep(0.1)


def produce(site: Site, values: range) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer({**site.client("alice"), "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(
            "orders", str(value), partition=value % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(120) == 0
    assert failed == []


def consume(site: Site, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer({**site.client("alice"), "group.id": "readers"})
    consumer.assign([confluent_kafka.TopicPartition("orders", partition, 0) for partition in range(3)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 1.0):
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    consumer.close()
    return sorted(found)


def test_three_machines_are_a_cluster_that_loses_one_replaces_it_and_loses_nothing(
    site: Site, machines: dict[int, Machine]
) -> None:
    prepare_alice(site)
    produce(site, range(RECORDS))
    machines[2].stop(signal.SIGKILL)
    produce(site, range(RECORDS, 2 * RECORDS))
    machines[2] = site.machine(2, 2)
    machines[2].wait_ready()
    # The new machine has the old volume: it was not formatted again.
    assert not [line for line in machines[2].asked() if line.startswith("mkfs")]
    admin = AdminClient(site.client("operator"))
    deadline = time.monotonic() + 60
    while True:
        partitions = admin.list_topics("orders", timeout=30).topics["orders"].partitions.values()
        if all(sorted(each.isrs) == [1, 2, 3] for each in partitions):
            break
        assert time.monotonic() < deadline, {each.id: each.isrs for each in partitions}
        time.sleep(0.2)
    machines[1].stop(signal.SIGKILL)
    produce(site, range(2 * RECORDS, 3 * RECORDS))
    assert consume(site, 3 * RECORDS) == list(range(3 * RECORDS))


def test_a_first_machine_formats_its_empty_volume_and_installs_without_the_internet(
    machines: dict[int, Machine],
) -> None:
    asked = machines[3].asked()
    assert len([line for line in asked if line.startswith("mkfs.xfs")]) == 1
    (pip,) = [line for line in asked if line.startswith("pip ")]
    assert "--no-index" in pip
    assert "tiered[postgres]==0.1.0" in pip
    assert [line for line in asked if "attach-network-interface" in line and "eni-3" in line]
    assert [line for line in asked if "attach-volume" in line and "vol-3" in line]


def test_what_the_brokers_user_owns_is_no_way_to_root(machines: dict[int, Machine]) -> None:
    """Root would follow a link that somebody who took over the broker had put into a folder of its user."""
    commands = machines[3].asked()
    assert [line for line in commands if line.startswith("runuser -u tiered -- ") and line.endswith(" secrets")]
    logs = machines[3].folder / "var/log/tiered"
    owned = [line for line in commands if line.startswith("chown ")]
    # systemd opens broker.log in this folder as root.
    assert [line for line in owned if line.endswith(f" {logs}")] == []
    later = [line for line in owned if not line.endswith(f" {logs}/audit")]
    assert later
    assert [line for line in later if "--no-dereference" not in line] == []


def test_secrets_are_readable_by_their_owner_alone_and_only_in_memory(machines: dict[int, Machine]) -> None:
    folder = machines[3].folder
    for name in ("broker.pem", "ca.pem", "pgpass"):
        assert (folder / "run/tiered" / name).stat().st_mode & 0o077 == 0
    assert (folder / "run/tiered/pgpass").read_text() == "*:*:*:*:a\\:b\\\\c\n"
    text = (folder / "user-data").read_text() + (folder / "etc/tiered/broker.toml").read_text()
    assert "PRIVATE KEY" not in text


def test_a_new_certificate_is_fetched_and_an_empty_one_leaves_the_old_in_place(
    site: Site, machines: dict[int, Machine]
) -> None:
    client: Any = boto3.session.Session(region_name="us-east-1").client(
        "secretsmanager", endpoint_url=site.environ["AWS_ENDPOINT_URL"]
    )
    prepare = str(machines[3].folder / "usr/local/sbin/tiered-prepare")
    shown = machines[3].folder / "run/tiered/broker.pem"
    renewed = site.authority.sign("broker-3").both.read_text()
    client.put_secret_value(SecretId="broker-3", SecretString=renewed)
    assert machines[3].run(prepare, "secrets").returncode == 0
    assert shown.read_text().strip() == renewed.strip()
    client.put_secret_value(SecretId="broker-3", SecretString=" ")
    assert machines[3].run(prepare, "secrets").returncode == 1
    assert shown.read_text().strip() == renewed.strip()
    # A broker that starts again goes on with it.
    again = machines[3].run(prepare, "all")
    assert (again.returncode, "the secrets from before stay" in again.stderr) == (0, True)


def test_metrics_are_what_the_alarms_look_at(machines: dict[int, Machine]) -> None:
    done = machines[3].run(str(machines[3].folder / "usr/local/sbin/tiered-metrics"))
    assert done.returncode == 0, done.stderr
    namespace, _, text = (machines[3].folder / "metrics").read_text().partition(" ")
    assert namespace == "Tiered"
    values = {each["MetricName"]: each for each in json.loads(text)}
    assert values["Serving"]["Value"] == 1
    alarms = (ROOT / "terraform" / "modules" / "observability" / "main.tf").read_text()
    assert set(values) == set(re.findall(r'metric = "(\w+)"', alarms))
    assert values["DiskUsed"]["Dimensions"] == [
        {"Name": "Cluster", "Value": "test"},
        {"Name": "Broker", "Value": "3"},
    ]


def test_an_operator_makes_topics_users_and_rules_with_the_commands_of_the_handbook(
    site: Site, machines: dict[int, Machine], tmp_path: Path
) -> None:
    assert machines[3].is_running()
    properties = tmp_path / "operator.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={site.authority.pem}\n"
        f"ssl.keystore.location={site.operator.both}\n"
    )
    (tmp_path / "password").write_text("a password of bob\n")
    environ = {
        **os.environ,
        "TIERED_COMMAND_CONFIG": str(properties),
        "TIERED_BOOTSTRAP": f"127.0.0.1:{site.inputs[3]['ports']['internal']}",
    }
    for words in (
        ["brokers", "list"],
        # One of the three machines may be dead by now.
        ["topics", "create", "payments", "-p", "6", "--replication-factor", "2"],
        ["users", "create", "bob", "--password-file", str(tmp_path / "password")],
        ["acls", "add", "--principal", "User:bob", "--producer", "--topic", "payments"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tiered.cli", *words], env=environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"


def test_an_archive_that_is_not_the_pinned_one_is_not_installed(site: Site) -> None:
    inputs = {**site.inputs[3], "release": {**site.inputs[3]["release"], "sha256": "0" * 64}}
    root = site.folder / "machine-wrong"
    machine = Machine(root, volume_id="vol-9", environ=site.environ)
    script = Site.render(
        Site(
            folder=site.folder, terraform=site.terraform, inputs={3: inputs}, operator=site.operator,
            authority=site.authority, environ=site.environ,
        ),
        3,
        root,
    )  # fmt: skip
    with pytest.raises(AssertionError, match="is not the archive that was pinned"):
        machine.boot(script)
    assert not [line for line in machine.asked() if line.startswith(("pip", "mkfs"))]

"""A whole cluster, applied to moto and destroyed: what AWS is asked for, attribute by attribute.

moto shows what Terraform asks for and that it can all be taken away again. It enforces no permission and starts no
machine, so nothing here says that AWS would do the same (docs/operations.md names what was never checked there).
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import boto3
import pytest

from tests.broker_process import free_port
from tests.terraform.installed import ROOT, WorkingCopy

pytestmark = [pytest.mark.terraform, pytest.mark.timeout(1800)]

WHERE = "terraform/envs/aws"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-1"}
SECRETS = ("broker-1", "broker-2", "broker-3", "authority")
START_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What Terraform says that it made, and AWS as moto shows it."""

    outputs: dict[str, Any]
    url: str

    def client(self, service: str) -> Any:
        session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1")
        return session.client(service, endpoint_url=self.url)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def moto_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.terraform.moto_server", str(port)],
            cwd=ROOT, stdout=output, stderr=output, env={**os.environ, **KEYS},
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=5).close()
                break
            except URLError:
                assert process.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                time.sleep(0.2)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture(scope="module")
def applied(terraform: WorkingCopy, moto_url: str) -> Iterator[Applied]:
    """Applies the example to moto; afterwards destroys it, and holds that nothing is left in the state."""
    environ = {**KEYS, "AWS_ENDPOINT_URL": moto_url}
    secrets = Applied(outputs={}, url=moto_url).client("secretsmanager")
    arns = {name: secrets.create_secret(Name=f"tiered/{name}", SecretString="x")["ARN"] for name in SECRETS}
    terraform.init(WHERE)
    given = terraform.folder / WHERE / "moto.auto.tfvars.json"
    given.write_text(
        json.dumps(
            {
                "authority_secret_arn": arns["authority"],
                "brokers": {
                    str(number): {
                        "zone": f"eu-west-1{'abc'[number - 1]}", "certificate_secret_arn": arns[f"broker-{number}"]
                    }
                    for number in (1, 2, 3)
                },
                "keep_on_destroy": False,
                # moto knows no later one.
                "spark": {"artifacts": "s3://example-releases/spark", "release_label": "emr-spark-8.0.0"},
            }
        )
    )  # fmt: skip
    words = ("-input=false", "-no-color", "-auto-approve", f"-var-file={given.name}")
    example = ("-var-file=examples/three-brokers.tfvars",)
    # The endpoint of moto is not per bucket.
    path_style = terraform.folder / WHERE / "moto_override.tf"
    path_style.write_text('provider "aws" {\n  s3_use_path_style = true\n}\n')
    try:
        terraform.run(WHERE, "apply", *example, *words, environ=environ)
        outputs = json.loads(terraform.run(WHERE, "output", "-json", environ=environ).stdout)
        yield Applied(outputs={name: each["value"] for name, each in outputs.items()}, url=moto_url)
    finally:
        terraform.run(WHERE, "destroy", *example, *words, environ=environ)
        left = json.loads((terraform.folder / WHERE / "terraform.tfstate").read_text())["resources"]
        assert left == []


def test_the_bucket_is_closed_encrypted_and_keeps_live_segments(applied: Applied) -> None:
    s3: Any = boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1"
    ).client("s3", endpoint_url=applied.url)
    (bucket,) = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert bucket == "example-tiered-segments"
    assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
    (owner,) = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert owner["ObjectOwnership"] == "BucketOwnerEnforced"
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"]
    (statement,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [each.get("Transitions", []) for each in rules] == [[], []]
    assert [set(each.get("Expiration", {})) <= {"ExpiredObjectDeleteMarker"} for each in rules] == [True, True]
    assert rules[0]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1


def test_no_way_leads_to_the_internet_and_no_port_is_open_to_it(applied: Applied) -> None:
    ec2 = applied.client("ec2")
    (vpc,) = ec2.describe_vpcs(Filters=[{"Name": "tag:Cluster", "Values": ["tiered"]}])["Vpcs"]
    inside = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
    subnets = ec2.describe_subnets(Filters=inside)["Subnets"]
    assert len({each["AvailabilityZone"] for each in subnets}) == 3
    assert not any(each["MapPublicIpOnLaunch"] for each in subnets)
    assert ec2.describe_internet_gateways(
        Filters=[{"Name": "attachment.vpc-id", "Values": [vpc["VpcId"]]}]
    )["InternetGateways"] == []  # fmt: skip
    groups = {
        each["GroupName"]: each["GroupId"] for each in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]
    }
    ids = [{"Name": "group-id", "Values": list(groups.values())}]
    ours = ec2.describe_security_group_rules(Filters=ids)["SecurityGroupRules"]
    assert len(ours) > 20
    assert not [each for each in ours if each.get("CidrIpv4") == "0.0.0.0/0" or each.get("CidrIpv6")]
    assert not [each for each in ours if each["IpProtocol"] == "-1"]
    reached = [each for each in ours if each["GroupId"] == groups["tiered-database"] and not each["IsEgress"]]
    assert {(each["FromPort"], each["ToPort"], "CidrIpv4" in each) for each in reached} == {(5432, 5432, False)}


def test_the_catalogue_has_a_standby_and_is_private(applied: Applied) -> None:
    rds = applied.client("rds")
    (database,) = rds.describe_db_instances()["DBInstances"]
    assert database["MultiAZ"]
    assert database["StorageEncrypted"]
    assert not database["PubliclyAccessible"]
    assert database["MasterUserSecret"]["SecretArn"].startswith("arn:aws:secretsmanager:")
    group = database["DBParameterGroups"][0]["DBParameterGroupName"]
    parameters = rds.describe_db_parameters(DBParameterGroupName=group)["Parameters"]
    values = {each["ParameterName"]: each.get("ParameterValue") for each in parameters}
    assert (values["rds.force_ssl"], values["synchronous_commit"]) == ("1", "on")


def test_each_broker_has_a_machine_a_volume_and_a_name_of_its_own(applied: Applied) -> None:
    groups = applied.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert sorted(each["AutoScalingGroupName"] for each in groups) == [f"tiered-broker-{n}" for n in (1, 2, 3)]
    assert {each["MaxSize"] for each in groups} == {1}
    ec2 = applied.client("ec2")
    volumes = ec2.describe_volumes(VolumeIds=list(applied.outputs["volume_ids"].values()))["Volumes"]
    assert {(each["VolumeType"], each["Encrypted"], each["AvailabilityZone"]) for each in volumes} == {
        ("gp3", True, f"eu-west-1{zone}") for zone in "abc"
    }
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        (version,) = ec2.describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=["$Latest"]
        )["LaunchTemplateVersions"]
        assert version["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"] == "required"
    route53 = applied.client("route53")
    (zone,) = route53.list_hosted_zones()["HostedZones"]
    # moto calls every zone a public one; tests/brokers.tftest.hcl holds that it is private.
    records = route53.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
    names = {each["Name"] for each in records}
    assert {"bootstrap.tiered.internal.", *(f"broker-{n}.tiered.internal." for n in (1, 2, 3))} <= names
    assert applied.outputs["bootstrap"] == "bootstrap.tiered.internal:9094"


def test_only_the_deleter_deletes_and_no_policy_allows_everything(applied: Applied) -> None:
    iam = applied.client("iam")
    policies = {each["PolicyName"]: each for each in iam.list_policies(Scope="Local")["Policies"]}
    allowed = {}
    for name, policy in policies.items():
        document = iam.get_policy_version(PolicyArn=policy["Arn"], VersionId=policy["DefaultVersionId"])
        statements = document["PolicyVersion"]["Document"]["Statement"]
        actions = [each["Action"] for each in statements]
        allowed[name] = {one for each in actions for one in ([each] if isinstance(each, str) else each)}
    assert [name for name, actions in allowed.items() if "s3:DeleteObject" in actions] == ["tiered-segments-deleter"]
    assert not [action for actions in allowed.values() for action in actions if "*" in action]
    for role in iam.list_roles()["Roles"]:
        for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
            text = json.dumps(document)
            assert ':*"' not in text.replace('log-group:/tiered/tiered/brokers:*"', '"'), text


def test_a_second_apply_of_the_same_keeps_the_volumes(applied: Applied, terraform: WorkingCopy) -> None:
    environ = {**KEYS, "AWS_ENDPOINT_URL": applied.url}
    said = terraform.run(
        WHERE, "plan", "-input=false", "-no-color", "-var-file=examples/three-brokers.tfvars",
        "-var-file=moto.auto.tfvars.json", environ=environ,
    ).stdout  # fmt: skip
    # What moto forgets is shown as a change; that anything must be replaced would be ours.
    replaced = [line for line in said.splitlines() if "must be replaced" in line or "will be destroyed" in line]
    assert [line for line in replaced if "aws_ebs_volume" in line or "aws_s3_bucket" in line or "aws_db" in line] == []


def test_what_is_rendered_holds_no_secret(terraform: WorkingCopy, applied: Applied) -> None:
    state = (terraform.folder / WHERE / "terraform.tfstate").read_text()
    assert "PRIVATE KEY" not in state
    assert applied.outputs["bootstrap"]
    assert Path(terraform.folder / WHERE / "examples/three-brokers.tfvars").exists()


def test_the_local_environment_is_applied_and_destroyed(terraform: WorkingCopy, moto_url: str) -> None:
    where, words = "terraform/envs/local", ("-auto-approve", "-input=false", "-no-color", f"-var=endpoint={moto_url}")
    terraform.init(where)
    try:
        terraform.run(where, "apply", *words)
        store = terraform.run(where, "output", "-raw", "store_url").stdout
        assert store == f"s3://tiered-local-segments/tiered?region=us-east-1&endpoint_url={moto_url}"
        arns = json.loads(terraform.run(where, "output", "-json", "secret_arns").stdout)
        assert sorted(arns) == ["authority", "broker-1", "broker-2", "broker-3"]
    finally:
        terraform.run(where, "destroy", *words)
    assert json.loads((terraform.folder / where / "terraform.tfstate").read_text())["resources"] == []

# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
}

variables {
  name               = "example"
  vpc_id             = "vpc-1"
  subnet_ids         = { eu-west-1a = "subnet-1", eu-west-1b = "subnet-2", eu-west-1c = "subnet-3" }
  security_group_ids = { brokers = "sg-1", load-balancer = "sg-2" }
  brokers = {
    "1" = { zone = "eu-west-1a", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:b1-AbCdEf" }
    "2" = { zone = "eu-west-1b", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:b2-AbCdEf" }
    "3" = { zone = "eu-west-1c", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:b3-AbCdEf" }
  }
  authority_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:ca-AbCdEf"
  release              = { version = "0.1.0", uri = "s3://releases/tiered-0.1.0.tar.gz", sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }
  ami_id               = "ami-0123456789abcdef0"
  volume_kms_key_arn   = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"
  store                = { bucket = "example-segments", prefix = "tiered" }
  store_policy_arns    = { writer = "arn:aws:iam::123456789012:policy/writer", deleter = "arn:aws:iam::123456789012:policy/deleter" }
  database             = { host = "db.example", port = 5432, database = "tiered", username = "tiered", secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf" }
}

run "each_broker_keeps_its_volume_address_and_name" {
  command = apply
  assert {
    condition     = alltrue([for volume in aws_ebs_volume.data : volume.encrypted && volume.type == "gp3" && volume.final_snapshot])
    error_message = "encrypted volumes that leave a snapshot"
  }
  assert {
    condition     = alltrue([for id, group in aws_autoscaling_group.broker : group.max_size == 1 && group.vpc_zone_identifier == toset([var.subnet_ids[var.brokers[id].zone]]) && length(group.instance_refresh) == 0])
    error_message = "one machine for each number, in the zone of its volume, never replaced by apply"
  }
  assert {
    condition     = aws_route53_record.broker["2"].name == "broker-2.tiered.internal" && output.bootstrap == "bootstrap.tiered.internal:9094"
    error_message = "names that stay"
  }
  assert {
    condition     = [for vpc in aws_route53_zone.private.vpc : vpc.vpc_id] == [var.vpc_id]
    error_message = "names are answered inside the VPC alone"
  }
  assert {
    condition     = alltrue([for template in aws_launch_template.broker : template.metadata_options[0].http_tokens == "required" && template.metadata_options[0].http_put_response_hop_limit == 1])
    error_message = "metadata need a token"
  }
  assert {
    condition     = aws_lb.bootstrap.internal && alltrue([for template in aws_launch_template.broker : length(template.user_data) < 16384 * 4 / 3])
    error_message = "nothing faces the internet, and user data fit"
  }
  assert {
    condition     = startswith(module.user_data["2"].broker_toml, "broker_id = 2\nrack = \"eu-west-1b\"\n") && strcontains(module.user_data["2"].broker_toml, "CLIENTS=SASL_SSL://")
    error_message = "each has a configuration of its own"
  }
}

run "tls_logins_and_access_control_are_on" {
  command = plan
  assert {
    condition     = local.settings["tiered.authorizer"] == "acl" && local.settings["sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    error_message = "clients log in, and may do what lists say"
  }
  assert {
    condition     = local.settings["super.users"] == "User:CN=tiered-operator"
    error_message = "operators administer, by their certificates"
  }
  assert {
    condition     = local.settings["tiered.broker.principals"] == "User:CN=broker-*.tiered.internal"
    error_message = "a broker that is added later is one to the others without a restart"
  }
  assert {
    condition     = local.settings["default.replication.factor"] == "3" && local.settings["min.insync.replicas"] == "2"
    error_message = "a broker may be lost"
  }
}

run "a_role_reaches_what_is_its_own" {
  command = plan
  assert {
    condition     = alltrue([for id, document in data.aws_iam_policy_document.broker : !contains(flatten([for statement in document.statement : tolist(statement.resources)]), "*") || alltrue([for statement in document.statement : contains(["Metrics", "SessionManager"], statement.sid) if contains(statement.resources, "*")])])
    error_message = "only actions that know no resources have none"
  }
  assert {
    condition     = !contains(one([for statement in data.aws_iam_policy_document.broker["1"].statement : statement if statement.sid == "ItsSecrets"]).resources, var.brokers["2"].certificate_secret_arn)
    error_message = "a broker does not read another one's key"
  }
}

run "mistakes_are_named" {
  command = plan
  variables {
    brokers       = { "01" = { zone = "eu-west-1a", certificate_secret_arn = "-----BEGIN PRIVATE KEY-----" } }
    release       = { version = "latest", uri = "https://example.com/tiered.whl", sha256 = "" }
    ami_id        = "latest"
    instance_type = "t3.micro"
    volume        = { gib = 1, iops = 1 }
    settings      = { "ssl.client.auth" = "none" }
    operators     = []
    domain        = "internal"
  }
  expect_failures = [var.brokers, var.release, var.ami_id, var.instance_type, var.volume, var.settings, var.operators, var.domain]
}

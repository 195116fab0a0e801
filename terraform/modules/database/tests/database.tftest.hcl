# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-west-1" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::example-segments" }
  }
  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/example" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/example" }
  }
  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::123456789012:instance-profile/example" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/net/example/1234567890123456" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/example/1234567890123456" }
  }
  mock_resource "aws_network_interface" {
    defaults = { arn = "arn:aws:ec2:eu-west-1:123456789012:network-interface/eni-0123456789abcdef0", private_ip = "10.60.0.10" }
  }
  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0", arn = "arn:aws:ec2:eu-west-1:123456789012:volume/vol-0123456789abcdef0" }
  }
}

variables {
  name              = "example"
  subnet_ids        = ["subnet-1", "subnet-2", "subnet-3"]
  security_group_id = "sg-1"
}

run "a_commit_is_never_forgotten" {
  command = plan
  assert {
    condition     = aws_db_instance.this.multi_az && aws_db_instance.this.backup_retention_period >= 1
    error_message = "a synchronous standby, and backups"
  }
  assert {
    condition     = contains([for parameter in aws_db_parameter_group.this.parameter : "${parameter.name}=${parameter.value}"], "synchronous_commit=on")
    error_message = "commits wait for the disk and for the standby"
  }
  assert {
    condition     = aws_db_instance.this.deletion_protection && !aws_db_instance.this.skip_final_snapshot
    error_message = "it is not deleted by accident, nor without a snapshot"
  }
}

run "it_is_private_and_over_tls" {
  command = plan
  assert {
    condition     = !aws_db_instance.this.publicly_accessible && aws_db_instance.this.storage_encrypted
    error_message = "private and encrypted"
  }
  assert {
    condition     = contains([for parameter in aws_db_parameter_group.this.parameter : "${parameter.name}=${parameter.value}"], "rds.force_ssl=1")
    error_message = "TLS is required"
  }
  assert {
    condition     = aws_db_instance.this.manage_master_user_password && aws_db_instance.this.password == null
    error_message = "the password is in Secrets Manager, not in the state"
  }
}

run "a_hung_client_does_not_block_the_others" {
  command = plan
  assert {
    condition     = length(setsubtract(["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"], [for parameter in aws_db_parameter_group.this.parameter : parameter.name])) == 0
    error_message = "time-outs of the server"
  }
}

run "one_subnet_is_refused" {
  command = plan
  variables {
    subnet_ids     = ["subnet-1", "subnet-1"]
    engine_version = "12"
    instance_class = "m7g.large"
    storage_gib    = 1
    backup_days    = 0
  }
  expect_failures = [var.subnet_ids, var.engine_version, var.instance_class, var.storage_gib, var.backup_days]
}

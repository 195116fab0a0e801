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
  name       = "example"
  broker_ids = ["1", "2", "3"]
}

run "each_broker_has_the_alarms_that_matter" {
  command = plan
  assert {
    condition     = length(setsubtract(["example-broker-3-uploads-overdue", "example-broker-3-under-replicated", "example-broker-3-disk", "example-broker-3-serving"], output.alarm_names)) == 0
    error_message = "overdue uploads, partitions that lack replicas, disks, and brokers that are silent"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.broker["1-serving"].treat_missing_data == "breaching"
    error_message = "silence is an alarm"
  }
  assert {
    condition     = aws_cloudwatch_log_group.brokers.retention_in_days == 365
    error_message = "logs have an end"
  }
}

run "what_cannot_be_is_refused" {
  command = plan
  variables {
    broker_ids             = []
    alarm_topic_arns       = ["me@example.com"]
    retention_days         = 2
    upload_overdue_seconds = 1
    disk_used_percent      = 100
  }
  expect_failures = [var.broker_ids, var.alarm_topic_arns, var.retention_days, var.upload_overdue_seconds, var.disk_used_percent]
}

# What the mocked provider answers in every module's tests.
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

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
  name  = "example"
  zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
}

run "subnets_are_private_and_in_three_zones" {
  command = apply
  assert {
    condition     = length(aws_subnet.private) == 3 && alltrue([for subnet in aws_subnet.private : !subnet.map_public_ip_on_launch])
    error_message = "three subnets, none of which gives public addresses"
  }
  assert {
    condition     = length(distinct(aws_subnet.private[*].cidr_block)) == 3
    error_message = "subnets overlap"
  }
  assert {
    condition     = length(aws_route_table.private.route) == 0
    error_message = "there is no route to the internet"
  }
}

run "no_port_is_open_to_everybody" {
  command = plan
  assert {
    condition     = alltrue([for rule in concat(values(aws_vpc_security_group_ingress_rule.clients), values(aws_vpc_security_group_ingress_rule.bootstrap)) : rule.cidr_ipv4 == "10.60.0.0/16" && rule.from_port == rule.to_port])
    error_message = "clients come from the VPC alone unless somebody says otherwise, to one port"
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.operators) == 0
    error_message = "operators come from nowhere unless somebody says so"
  }
  assert {
    condition     = aws_vpc_security_group_ingress_rule.way["brokers-database"].from_port == 5432 && length([for name, rule in aws_vpc_security_group_ingress_rule.way : name if endswith(name, "-database")]) == 2
    error_message = "brokers and Spark reach the database, and nobody else"
  }
}

run "everybody_is_refused_as_a_client" {
  command = plan
  variables {
    client_cidr_blocks   = ["0.0.0.0/0"]
    operator_cidr_blocks = ["0.0.0.0/0"]
  }
  expect_failures = [var.client_cidr_blocks, var.operator_cidr_blocks]
}

run "two_zones_are_refused" {
  command = plan
  variables {
    zones               = ["eu-west-1a", "eu-west-1b", "eu-west-1a"]
    cidr_block          = "10.0.0.0/28"
    interface_endpoints = ["logs"]
    ports               = { internal = 9093, clients = 9093, http = 80 }
  }
  expect_failures = [var.zones, var.cidr_block, var.interface_endpoints, var.ports]
}

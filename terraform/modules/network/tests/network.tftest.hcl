# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
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

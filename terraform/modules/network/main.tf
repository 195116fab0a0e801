# A VPC without a way in from the internet or out to it: private subnets in three zones, AWS's services by endpoints,
# and one security group for each role. Rules name roles, not addresses, wherever both ends are ours.

data "aws_region" "current" {}

locals {
  tags = merge(var.tags, { Cluster = var.name })
  # What clients outside of a role may come from.
  clients   = toset(concat([var.cidr_block], var.client_cidr_blocks))
  operators = toset(var.operator_cidr_blocks)
  roles = {
    brokers       = "Brokers of the log"
    load-balancer = "The bootstrap address"
    database      = "The catalogue in PostgreSQL"
    spark         = "Jobs of Spark"
    endpoints     = "AWS services inside the VPC"
  }
  # Who reaches whom, between roles. Each is a way in at one end and a way out at the other.
  ways = {
    brokers-internal      = { from = "brokers", to = "brokers", port = var.ports.internal }
    brokers-http          = { from = "brokers", to = "brokers", port = var.ports.http }
    load-balancer-clients = { from = "load-balancer", to = "brokers", port = var.ports.clients }
    brokers-database      = { from = "brokers", to = "database", port = 5432 }
    spark-database        = { from = "spark", to = "database", port = 5432 }
    spark-brokers         = { from = "spark", to = "brokers", port = var.ports.clients }
    spark-catalogue       = { from = "spark", to = "brokers", port = var.ports.http }
    brokers-endpoints     = { from = "brokers", to = "endpoints", port = 443 }
    spark-endpoints       = { from = "spark", to = "endpoints", port = 443 }
  }
}

resource "aws_vpc" "this" {
  # checkov:skip=CKV2_AWS_11: flow logs cost as much as the traffic they describe; who needs them adds them to the vpc_id of the outputs
  cidr_block           = var.cidr_block
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = var.name })
}

# Every VPC has one; without rules it lets nobody through who was forgotten.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${var.name}-closed" })
}

resource "aws_subnet" "private" {
  count                   = length(var.zones)
  vpc_id                  = aws_vpc.this.id
  cidr_block              = cidrsubnet(var.cidr_block, 4, count.index)
  availability_zone       = var.zones[count.index]
  map_public_ip_on_launch = false
  tags                    = merge(local.tags, { Name = "${var.name}-private-${var.zones[count.index]}" })
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${var.name}-private" })
}

resource "aws_route_table_association" "private" {
  count          = length(var.zones)
  subnet_id      = aws_subnet.private[count.index].id
  route_table_id = aws_route_table.private.id
}

# Free of charge, and what makes uploads cost no transfer.
resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${data.aws_region.current.name}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [aws_route_table.private.id]
  tags              = merge(local.tags, { Name = "${var.name}-s3" })
}

resource "aws_vpc_endpoint" "interface" {
  for_each            = var.interface_endpoints
  vpc_id              = aws_vpc.this.id
  service_name        = "com.amazonaws.${data.aws_region.current.name}.${each.value}"
  vpc_endpoint_type   = "Interface"
  private_dns_enabled = true
  subnet_ids          = aws_subnet.private[*].id
  security_group_ids  = [aws_security_group.role["endpoints"].id]
  tags                = merge(local.tags, { Name = "${var.name}-${each.value}" })
}

data "aws_ec2_managed_prefix_list" "s3" {
  name = "com.amazonaws.${data.aws_region.current.name}.s3"
}

resource "aws_security_group" "role" {
  # checkov:skip=CKV2_AWS_5: the groups are attached by the modules of each role, which checkov does not follow
  for_each    = local.roles
  name        = "${var.name}-${each.key}"
  description = each.value
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_vpc_security_group_ingress_rule" "way" {
  for_each                     = local.ways
  security_group_id            = aws_security_group.role[each.value.to].id
  referenced_security_group_id = aws_security_group.role[each.value.from].id
  description                  = each.key
  from_port                    = each.value.port
  to_port                      = each.value.port
  ip_protocol                  = "tcp"
}

resource "aws_vpc_security_group_egress_rule" "way" {
  for_each                     = local.ways
  security_group_id            = aws_security_group.role[each.value.from].id
  referenced_security_group_id = aws_security_group.role[each.value.to].id
  description                  = each.key
  from_port                    = each.value.port
  to_port                      = each.value.port
  ip_protocol                  = "tcp"
}

# Workers of one Spark job talk to each other on ports of their choice.
resource "aws_vpc_security_group_ingress_rule" "spark" {
  # checkov:skip=CKV_AWS_25: the port is reached from the same group alone, and not from 0.0.0.0/0
  security_group_id            = aws_security_group.role["spark"].id
  referenced_security_group_id = aws_security_group.role["spark"].id
  description                  = "Workers of one job"
  from_port                    = 1024
  to_port                      = 65535
  ip_protocol                  = "tcp"
}

resource "aws_vpc_security_group_egress_rule" "spark" {
  security_group_id            = aws_security_group.role["spark"].id
  referenced_security_group_id = aws_security_group.role["spark"].id
  description                  = "Workers of one job"
  from_port                    = 1024
  to_port                      = 65535
  ip_protocol                  = "tcp"
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  for_each          = toset(["brokers", "spark"])
  security_group_id = aws_security_group.role[each.value].id
  prefix_list_id    = data.aws_ec2_managed_prefix_list.s3.id
  description       = "The bucket, by the gateway endpoint"
  from_port         = 443
  to_port           = 443
  ip_protocol       = "tcp"
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each          = local.clients
  security_group_id = aws_security_group.role["brokers"].id
  cidr_ipv4         = each.value
  description       = "Clients, who log in over TLS"
  from_port         = var.ports.clients
  to_port           = var.ports.clients
  ip_protocol       = "tcp"
}

resource "aws_vpc_security_group_ingress_rule" "bootstrap" {
  for_each          = local.clients
  security_group_id = aws_security_group.role["load-balancer"].id
  cidr_ipv4         = each.value
  description       = "Clients that ask for the brokers"
  from_port         = var.ports.clients
  to_port           = var.ports.clients
  ip_protocol       = "tcp"
}

resource "aws_vpc_security_group_ingress_rule" "operators" {
  for_each          = { for each in setproduct(local.operators, ["internal", "http"]) : "${each[0]}-${each[1]}" => { block = each[0], port = var.ports[each[1]] } }
  security_group_id = aws_security_group.role["brokers"].id
  cidr_ipv4         = each.value.block
  description       = "Operators, who show a certificate"
  from_port         = each.value.port
  to_port           = each.value.port
  ip_protocol       = "tcp"
}

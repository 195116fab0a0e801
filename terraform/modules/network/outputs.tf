output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "subnet_ids" {
  description = "The private subnet of each zone, by the zone's name."
  value       = { for index, zone in var.zones : zone => aws_subnet.private[index].id }
}

output "security_group_ids" {
  description = "The security group of each role: brokers, load-balancer, database, spark, endpoints."
  value       = { for role, group in aws_security_group.role : role => group.id }
}

output "ports" {
  description = "The brokers' ports, for the module of the brokers."
  value       = var.ports
}

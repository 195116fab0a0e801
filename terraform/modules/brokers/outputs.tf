output "bootstrap" {
  description = "What clients are told: the bootstrap address, with SASL_SSL and SCRAM-SHA-512."
  value       = "${local.bootstrap}:${var.ports.clients}"
}

output "hosts" {
  description = "The name of each broker, which must stand in its certificate as CN and as a subject alternative name, beside the bootstrap name."
  value       = local.hosts
}

output "bootstrap_host" {
  description = "The bootstrap name, a subject alternative name of every broker's certificate."
  value       = local.bootstrap
}

output "operator_bootstrap" {
  description = "Where operators with a certificate connect: the brokers' internal listeners."
  value       = join(",", [for host in values(local.hosts) : "${host}:${var.ports.internal}"])
}

output "autoscaling_groups" {
  description = "The group of each broker's one machine."
  value       = { for id, group in aws_autoscaling_group.broker : id => group.name }
}

output "volume_ids" {
  description = "The data volume of each broker."
  value       = { for id, volume in aws_ebs_volume.data : id => volume.id }
}

output "user_data_sha256" {
  description = "Of each broker's user data: a broker whose machine is older than a change is to be replaced."
  value       = { for id, data in module.user_data : id => data.sha256 }
}

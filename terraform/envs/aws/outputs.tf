output "bootstrap" {
  description = "What clients are told."
  value       = module.brokers.bootstrap
}

output "operator_bootstrap" {
  description = "Where operators with a certificate connect."
  value       = module.brokers.operator_bootstrap
}

output "certificate_names" {
  description = "The names that the certificate of each broker must have."
  value       = { for id, host in module.brokers.hosts : id => [host, module.brokers.bootstrap_host] }
}

output "store_url" {
  description = "The cold tier, for tiered verify, tiered restore and Spark."
  value       = "s3://${module.storage.bucket}/${module.storage.prefix}?region=${var.region}"
}

output "database" {
  description = "The catalogue, and the secret with its password."
  value       = { host = module.database.host, secret_arn = module.database.secret_arn }
}

output "autoscaling_groups" {
  description = "The group of each broker's machine."
  value       = module.brokers.autoscaling_groups
}

output "volume_ids" {
  description = "The data volume of each broker."
  value       = module.brokers.volume_ids
}

output "user_data_sha256" {
  description = "Of each broker's user data."
  value       = module.brokers.user_data_sha256
}

output "spark_jobs" {
  description = "What starts each Spark job."
  value       = one(module.spark[*].jobs)
}

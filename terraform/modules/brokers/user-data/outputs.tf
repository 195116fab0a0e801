output "script" {
  description = "The script as it is."
  value       = local.script
}

output "compressed" {
  description = "The same for a launch template: compressed, because user data have 16 KiB at the most, and in base64."
  value       = base64gzip(local.script)
}

output "sha256" {
  description = "Changes when the script does."
  value       = sha256(local.script)
}

output "broker_toml" {
  description = "The broker's own configuration, which is a part of the script."
  value       = local.broker
}

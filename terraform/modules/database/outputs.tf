output "host" {
  description = "The database's name, which stays when the standby takes over."
  value       = aws_db_instance.this.address
}

output "port" {
  description = "Its port."
  value       = aws_db_instance.this.port
}

output "database" {
  description = "The database's name in PostgreSQL."
  value       = aws_db_instance.this.db_name
}

output "username" {
  description = "Its user."
  value       = aws_db_instance.this.username
}

output "secret_arn" {
  description = "Where Secrets Manager has the password. RDS changes it by itself every week."
  value       = aws_db_instance.this.master_user_secret[0].secret_arn
}

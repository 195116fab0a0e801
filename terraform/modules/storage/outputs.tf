output "bucket" {
  description = "The bucket's name."
  value       = aws_s3_bucket.segments.id
}

output "bucket_arn" {
  description = "The bucket's ARN."
  value       = aws_s3_bucket.segments.arn
}

output "prefix" {
  description = "What the keys of this cluster begin with."
  value       = var.prefix
}

output "kms_key_arn" {
  description = "The key that encrypts objects; the volumes of the brokers take it as well."
  value       = aws_kms_key.segments.arn
}

output "policy_arns" {
  description = "The managed policies by role: reader, writer (which reads too) and deleter."
  value       = { for role, policy in aws_iam_policy.role : role => policy.arn }
}

output "log_group" {
  description = "The log group of the brokers, for the module brokers."
  value       = { name = aws_cloudwatch_log_group.brokers.name, arn = aws_cloudwatch_log_group.brokers.arn }
}

output "alarm_names" {
  description = "All alarms."
  value       = sort([for alarm in aws_cloudwatch_metric_alarm.broker : alarm.alarm_name])
}

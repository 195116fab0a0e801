# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
}

variables {
  name       = "example"
  broker_ids = ["1", "2", "3"]
}

run "each_broker_has_the_alarms_that_matter" {
  command = plan
  assert {
    condition     = length(setsubtract(["example-broker-3-uploads-overdue", "example-broker-3-disk-only", "example-broker-3-under-replicated", "example-broker-3-disk", "example-broker-3-serving"], output.alarm_names)) == 0
    error_message = "overdue uploads, records on disks alone, partitions that lack replicas, disks, and brokers that are silent"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.broker["1-serving"].treat_missing_data == "breaching"
    error_message = "silence is an alarm"
  }
  assert {
    condition     = aws_cloudwatch_log_group.brokers.retention_in_days == 365
    error_message = "logs have an end"
  }
}

run "what_cannot_be_is_refused" {
  command = plan
  variables {
    broker_ids             = []
    alarm_topic_arns       = ["me@example.com"]
    retention_days         = 2
    upload_overdue_seconds = 1
    disk_only_seconds      = 1
    disk_used_percent      = 100
  }
  expect_failures = [var.broker_ids, var.alarm_topic_arns, var.retention_days, var.upload_overdue_seconds, var.disk_only_seconds, var.disk_used_percent]
}

# The log group of the brokers, and the alarms of each: what docs/operations.md tells how to read. Brokers send their metrics
# themselves every minute, so silence is trouble as well.

locals {
  tags = merge(var.tags, { Cluster = var.name })
  kinds = {
    serving = {
      metric = "Serving", statistic = "Minimum", comparison = "LessThanThreshold", threshold = 1, minutes = 3, missing = "breaching"
      means  = "The broker does not serve, or nobody hears of it."
    }
    uploads-overdue = {
      metric = "UploadBacklogAge", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = var.upload_overdue_seconds, minutes = 5, missing = "missing"
      means  = "Closed segments wait for their upload: the store or SQL is away, or uploads are too slow. The disk fills."
    }
    disk-only = {
      metric = "DiskOnlyAge", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = var.disk_only_seconds, minutes = 5, missing = "missing"
      means  = "The store lacks records that are older than this: they would be lost with the disks."
    }
    under-replicated = {
      metric = "UnderReplicatedPartitions", statistic = "Minimum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 10, missing = "missing"
      means  = "Partitions led here lack a replica in sync for ten minutes."
    }
    under-min-isr = {
      metric = "UnderMinIsrPartitions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 2, missing = "missing"
      means  = "Partitions led here refuse acks=all."
    }
    offline = {
      metric = "OfflinePartitions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 2, missing = "missing"
      means  = "Partitions of the cluster have no leader."
    }
    failed-partitions = {
      metric = "FailedPartitions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 1, missing = "missing"
      means  = "The disk refused writes."
    }
    disk = {
      metric = "DiskUsed", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = var.disk_used_percent, minutes = 5, missing = "missing"
      means  = "The data volume fills."
    }
    corruption = {
      metric = "ColdCorruptions", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 1, missing = "missing"
      means  = "An object in the bucket is not what was written."
    }
    reconcile = {
      metric = "ReconcileFindings", statistic = "Maximum", comparison = "GreaterThanThreshold", threshold = 0, minutes = 15, missing = "missing"
      means  = "Disk, catalogue and bucket disagree: tiered reconcile says what to do."
    }
  }
  alarms = { for pair in setproduct(var.broker_ids, keys(local.kinds)) : "${pair[0]}-${pair[1]}" => merge(local.kinds[pair[1]], { broker = pair[0], kind = pair[1] }) }
}

resource "aws_cloudwatch_log_group" "brokers" {
  # checkov:skip=CKV_AWS_158: CloudWatch encrypts by itself; kms_key_arn takes a key of one's own
  # checkov:skip=CKV_AWS_338: a year is the default; who keeps less has said so
  name              = "/tiered/${var.name}/brokers"
  retention_in_days = var.retention_days
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}

resource "aws_cloudwatch_metric_alarm" "broker" {
  for_each            = local.alarms
  alarm_name          = "${var.name}-broker-${each.value.broker}-${each.value.kind}"
  alarm_description   = "${each.value.means} See docs/operations.md, Reading the alarms: ${each.value.kind}."
  namespace           = "Tiered"
  metric_name         = each.value.metric
  dimensions          = { Cluster = var.name, Broker = each.value.broker }
  statistic           = each.value.statistic
  comparison_operator = each.value.comparison
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = each.value.minutes
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = local.tags
}

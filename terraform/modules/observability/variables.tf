variable "name" {
  description = "What every resource's name begins with: one word for each cluster of an account and region."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "name must have 3 to 20 small letters, digits and hyphens, beginning with a letter: names of load balancers and roles are made of it."
  }
}

variable "tags" {
  description = "Tags of every resource, beside Cluster and Name."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.tags), "Cluster")
    error_message = "tags must not have Cluster: the modules set it to name, and permissions of brokers depend on it."
  }
}

variable "broker_ids" {
  description = "The numbers of the brokers, as strings."
  type        = set(string)

  validation {
    condition     = length(var.broker_ids) >= 1
    error_message = "broker_ids must name one broker at least."
  }
}

variable "alarm_topic_arns" {
  description = "Topics of SNS that hear of alarms and of their ends. Empty: alarms are seen in the console alone."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:[^:]+:sns:", arn))])
    error_message = "alarm_topic_arns must be ARNs of SNS topics."
  }
}

variable "retention_days" {
  description = "How long logs are kept."
  type        = number
  default     = 365

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.retention_days)
    error_message = "retention_days must be one that CloudWatch has: 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731 and more years."
  }
}

variable "kms_key_arn" {
  description = "The key of the log group; null for CloudWatch's own. The key must let logs.REGION.amazonaws.com use it."
  type        = string
  default     = null
}

variable "upload_overdue_seconds" {
  description = "A closed segment that waits longer than this for its upload is overdue."
  type        = number
  default     = 900

  validation {
    condition     = var.upload_overdue_seconds >= 60
    error_message = "upload_overdue_seconds must be 60 or more: uploads are looked at once a minute."
  }
}

variable "disk_only_seconds" {
  description = "A record that is on disks alone for longer than this is late. Beyond tiered.disk.only.max.ms of every topic, ten minutes here."
  type        = number
  default     = 3600

  validation {
    condition     = var.disk_only_seconds >= 60
    error_message = "disk_only_seconds must be 60 or more: records are uploaded by the minute at best."
  }
}

variable "disk_used_percent" {
  description = "A volume that is fuller than this is told of."
  type        = number
  default     = 75

  validation {
    condition     = var.disk_used_percent >= 10 && var.disk_used_percent <= 95
    error_message = "disk_used_percent must be from 10 to 95: there must be time to act before writes are refused."
  }
}

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

variable "subnet_ids" {
  description = "Private subnets, in two zones at least: the standby is in another one than the database."
  type        = list(string)

  validation {
    condition     = length(distinct(var.subnet_ids)) >= 2
    error_message = "subnet_ids must name two subnets or more, in different zones: Multi-AZ needs them."
  }
}

variable "security_group_id" {
  description = "The security group of the role database."
  type        = string
}

variable "engine_version" {
  description = "PostgreSQL's version, major alone or with the minor one."
  type        = string
  default     = "17"

  validation {
    condition     = can(regex("^1[5-9](\\.[0-9]+)?$", var.engine_version))
    error_message = "engine_version must be PostgreSQL 15 or newer, such as 17 or 17.4."
  }
}

variable "instance_class" {
  description = "The machine. The catalogue is small: memory for its connections matters, processors hardly."
  type        = string
  default     = "db.t4g.medium"

  validation {
    condition     = startswith(var.instance_class, "db.")
    error_message = "instance_class must be one of RDS, such as db.t4g.medium or db.m7g.large."
  }
}

variable "storage_gib" {
  description = "The disk at first; it grows to four times of this by itself."
  type        = number
  default     = 50

  validation {
    condition     = var.storage_gib >= 20 && var.storage_gib <= 4096
    error_message = "storage_gib must be from 20 to 4096."
  }
}

variable "backup_days" {
  description = "So many days of backups with recovery to any moment. The bucket is a second way back: see docs/restore.md."
  type        = number
  default     = 14

  validation {
    condition     = var.backup_days >= 1 && var.backup_days <= 35
    error_message = "backup_days must be from 1 to 35: without backups RDS cannot recover to a moment."
  }
}

variable "keep_on_destroy" {
  description = "Whether deletion is refused, and a last snapshot taken where it is allowed. false only where nobody wants the catalogue."
  type        = bool
  default     = true
}

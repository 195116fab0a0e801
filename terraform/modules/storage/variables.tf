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

variable "bucket" {
  description = "The bucket's name, unique in all of AWS."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "bucket must have 3 to 63 small letters, digits and hyphens. Dots are refused: TLS does not cover them."
  }
}

variable "prefix" {
  description = "What the keys of this cluster begin with. Roles reach nothing else in the bucket."
  type        = string
  default     = "tiered"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9/_-]*[A-Za-z0-9]$", var.prefix))
    error_message = "prefix must be letters, digits, _, - and /, and neither begin nor end with /."
  }
}

variable "noncurrent_days" {
  description = "So long what the service has deleted, or somebody by mistake, can be brought back. It costs its storage so long."
  type        = number
  default     = 7

  validation {
    condition     = var.noncurrent_days >= 1 && var.noncurrent_days <= 365 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "noncurrent_days must be a whole number from 1 to 365."
  }
}

variable "force_destroy" {
  description = "Whether terraform destroy deletes the bucket with every record in it. Only for environments whose records nobody wants."
  type        = bool
  default     = false
}

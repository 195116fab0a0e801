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
  description = "Private subnets that workers run in."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 1
    error_message = "subnet_ids must name one private subnet at least: workers read brokers and the bucket from inside the VPC."
  }
}

variable "security_group_id" {
  description = "The security group of the role spark."
  type        = string
}

variable "release_label" {
  description = "EMR's release, which decides Spark's version: emr-spark-8.0.0 (Spark 4.0) or newer, and no emr-7. On Spark 4.0 the source reads in batches and does not stream."
  type        = string
  default     = "emr-spark-8.0.0"

  validation {
    condition     = can(regex("^emr-spark-([89]|[1-9][0-9]+)\\.[0-9]+\\.[0-9]+(-[a-z0-9]+)?$", var.release_label))
    error_message = "release_label must be emr-spark-8.0.0 or newer: those named emr-7 and older have Spark 3, which knows no data sources in Python. aws emr list-release-labels says what there is."
  }
}

variable "maximum" {
  description = "What all jobs together may take at most: this is the bound of what Spark can cost."
  type        = object({ vcpus = number, memory_gib = number, disk_gib = number })
  default     = { vcpus = 64, memory_gib = 256, disk_gib = 1000 }

  validation {
    condition     = alltrue([for value in values(var.maximum) : value >= 4])
    error_message = "maximum must allow 4 of each at least: a driver and one executor."
  }
}

variable "idle_minutes" {
  description = "After so many minutes without a job the application stops, and costs nothing."
  type        = number
  default     = 10

  validation {
    condition     = var.idle_minutes >= 1 && var.idle_minutes <= 10080
    error_message = "idle_minutes must be from 1 to 10080."
  }
}

variable "store" {
  description = "The bucket and the prefix of the cold tier."
  type        = object({ bucket = string, prefix = string })
}

variable "store_policy_arns" {
  description = "The policies reader, writer and deleter of the module storage."
  type        = object({ reader = string, writer = string, deleter = string })
}

variable "artifacts" {
  description = "Where the jobs are: s3://BUCKET/PREFIX with spark/jobs/*.py of the repository and environment.tar.gz, a packed virtual environment with tiered[spark,export,postgres] and database-ca.pem, who signs the database's certificate."
  type        = string

  validation {
    condition     = can(regex("^s3://[a-z0-9-]+(/[A-Za-z0-9._/-]*[A-Za-z0-9])?$", var.artifacts))
    error_message = "artifacts must be s3://BUCKET/PREFIX without a slash at its end."
  }
}

variable "meta_url" {
  description = "The catalogue, for compact and export, without its password."
  type        = string

  validation {
    condition     = startswith(var.meta_url, "postgresql://") && !can(regex("^postgresql://[^@/]*:[^@/]*@", var.meta_url)) && !strcontains(var.meta_url, "password=")
    error_message = "meta_url must be postgresql://USER@HOST/DATABASE without a password: parameters of jobs are shown in the console."
  }
}

variable "meta_secret_arn" {
  description = "The secret with the catalogue's password, for compact and export: text, or JSON with `password`, as RDS keeps it."
  type        = string

  validation {
    condition     = can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+$", var.meta_secret_arn))
    error_message = "meta_secret_arn must be the ARN of a secret in Secrets Manager. Never the password itself: it would stand in Terraform's state."
  }
}

variable "secrets_kms_key_arns" {
  description = "Keys of customers' own that this secret is encrypted with. Empty where Secrets Manager's own key is used."
  type        = list(string)
  default     = []
}

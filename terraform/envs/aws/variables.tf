variable "name" {
  description = "What every resource's name begins with."
  type        = string
}

variable "region" {
  description = "The AWS region."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region must be the name of an AWS region, such as eu-west-1."
  }
}

variable "zones" {
  description = "Three availability zones of the region."
  type        = list(string)

  validation {
    condition     = alltrue([for zone in var.zones : startswith(zone, var.region)])
    error_message = "zones must be of the region: for eu-west-1 those are eu-west-1a and its like."
  }
}

variable "bucket" {
  description = "The bucket of the cold tier, which is made."
  type        = string
}

variable "brokers" {
  description = "The brokers by their numbers: zone, and the secret with the certificate."
  type        = map(object({ zone = string, certificate_secret_arn = string }))
}

variable "authority_secret_arn" {
  description = "The secret with the authority's certificate."
  type        = string
}

variable "subject_suffix" {
  description = "What follows CN=NAME in the subjects of certificates."
  type        = string
  default     = ""
}

variable "operators" {
  description = "Names (CN) of operators' certificates."
  type        = list(string)
  default     = ["tiered-operator"]
}

variable "domain" {
  description = "The private zone of the brokers' names."
  type        = string
  default     = "tiered.internal"
}

variable "release" {
  description = "What deploy/release.sh made, where it was put, and its SHA-256."
  type        = object({ version = string, uri = string, sha256 = string })
}

variable "ami_id" {
  description = "The image of the brokers, Amazon Linux 2023."
  type        = string
}

variable "instance_type" {
  description = "The machine of the brokers."
  type        = string
  default     = "m7g.large"
}

variable "volume" {
  description = "The data volume of each broker."
  type        = object({ gib = number, iops = optional(number, 3000), mib_per_second = optional(number, 250) })
  default     = { gib = 200 }
}

variable "settings" {
  description = "More settings of brokers, under Kafka's names."
  type        = map(string)
  default     = {}
}

variable "database" {
  description = "The catalogue's version and machine."
  type        = object({ engine_version = optional(string, "17"), instance_class = optional(string, "db.t4g.medium") })
  default     = {}
}

variable "spark" {
  description = "Where Spark's jobs and their environment are, s3://BUCKET/PREFIX; null: no Spark."
  type        = object({ artifacts = string, release_label = optional(string, "emr-spark-8.0.0") })
  default     = null
}

variable "client_cidr_blocks" {
  description = "Networks of clients, beside the VPC."
  type        = list(string)
  default     = []
}

variable "operator_cidr_blocks" {
  description = "Networks of operators."
  type        = list(string)
  default     = []
}

variable "alarm_topic_arns" {
  description = "Topics of SNS that hear of alarms."
  type        = list(string)
  default     = []
}

variable "keep_on_destroy" {
  description = "Whether bucket, database and volumes survive terraform destroy, as themselves or as snapshots. false only where nobody wants the records."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of every resource."
  type        = map(string)
  default     = {}
}

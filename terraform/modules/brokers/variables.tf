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

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "The private subnet of each zone, by the zone's name."
  type        = map(string)
}

variable "security_group_ids" {
  description = "The security groups of the roles brokers and load-balancer."
  type        = map(string)

  validation {
    condition     = length(setsubtract(["brokers", "load-balancer"], keys(var.security_group_ids))) == 0
    error_message = "security_group_ids must have brokers and load-balancer: give it the output of the module network as it is."
  }
}

variable "ports" {
  description = "The brokers' ports: give it the output of the module network as it is."
  type        = object({ internal = number, clients = number, http = number })
  default     = { internal = 9093, clients = 9094, http = 8443 }
}

variable "brokers" {
  description = "The brokers by their numbers: the zone of each and the secret with its certificate, chain and key in PEM. A number stays with its volume for ever; scaling out adds one, and one is taken away only after `tiered brokers drain`."
  type        = map(object({ zone = string, certificate_secret_arn = string }))

  validation {
    condition     = length(var.brokers) >= 3
    error_message = "brokers must have three entries or more: with fewer no broker can be lost without stopping writes."
  }
  validation {
    condition     = alltrue([for id in keys(var.brokers) : can(regex("^[1-9][0-9]{0,3}$", id))])
    error_message = "The keys of brokers are their numbers, from \"1\" to \"9999\", without leading zeros."
  }
  validation {
    condition     = alltrue([for broker in var.brokers : can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+$", broker.certificate_secret_arn))])
    error_message = "certificate_secret_arn must be the ARN of a secret in Secrets Manager. Never the certificate itself: it would stand in Terraform's state."
  }
  validation {
    condition     = length(distinct([for broker in var.brokers : broker.zone])) >= min(3, length(var.brokers))
    error_message = "brokers must be in three zones: otherwise the loss of one zone can take the majority of replicas."
  }
}

variable "authority_secret_arn" {
  description = "The secret with the certificates, in PEM, of who signs certificates of brokers and clients."
  type        = string

  validation {
    condition     = can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:.+$", var.authority_secret_arn))
    error_message = "authority_secret_arn must be the ARN of a secret in Secrets Manager."
  }
}

variable "secrets_kms_key_arns" {
  description = "Keys of customers' own that these secrets are encrypted with. Empty where Secrets Manager's own key is used."
  type        = list(string)
  default     = []
}

variable "subject_suffix" {
  description = "What follows CN=NAME in the subjects of certificates, as Java writes them, such as \",OU=ops,O=Example\"."
  type        = string
  default     = ""

  validation {
    condition     = var.subject_suffix == "" || can(regex("^,[A-Z]+=", var.subject_suffix))
    error_message = "subject_suffix must be empty or begin with a comma and a part of the name, such as \",O=Example\"."
  }
}

variable "operators" {
  description = "Names (CN) of certificates of people who may do everything: they make the first users and access control lists."
  type        = list(string)
  default     = ["tiered-operator"]

  validation {
    condition     = length(var.operators) >= 1 && alltrue([for name in var.operators : can(regex("^[A-Za-z0-9._@-]+$", name))])
    error_message = "operators must name one at least, of letters, digits and . _ @ -: otherwise nobody could make the first user."
  }
}

variable "domain" {
  description = "The private zone of the brokers' names: broker-1.DOMAIN, and bootstrap.DOMAIN for all."
  type        = string
  default     = "tiered.internal"

  validation {
    condition     = can(regex("^([a-z0-9-]+\\.)+[a-z]+$", var.domain))
    error_message = "domain must be a name of two parts or more in small letters, such as tiered.internal."
  }
}

variable "release" {
  description = "What brokers install, made by deploy/release.sh: the version, s3://BUCKET/KEY of the archive, and its SHA-256."
  type        = object({ version = string, uri = string, sha256 = string })

  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+([a-z0-9.+-]*)$", var.release.version))
    error_message = "release.version must be one version exactly, such as 0.1.0: brokers of one cluster run what was chosen, not what is newest."
  }
  validation {
    condition     = can(regex("^s3://[a-z0-9-]+/.+\\.tar\\.gz$", var.release.uri))
    error_message = "release.uri must be s3://BUCKET/KEY.tar.gz of an archive that deploy/release.sh has made."
  }
  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.release.sha256))
    error_message = "release.sha256 must be the 64 digits that deploy/release.sh prints: what has another hash is not installed."
  }
}

variable "ami_id" {
  description = "The image, Amazon Linux 2023. Pinned, so that a replaced broker is the same as the one before."
  type        = string

  validation {
    condition     = can(regex("^ami-[0-9a-f]{8,17}$", var.ami_id))
    error_message = "ami_id must be the id of an image. The newest: aws ssm get-parameter --name /aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
  }
}

variable "instance_type" {
  description = "The machine, of the processor that ami_id and the release are for."
  type        = string
  default     = "m7g.large"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type)) && !startswith(var.instance_type, "t")
    error_message = "instance_type must be one of EC2 that is not of the T family: credits that run out look like a broken broker."
  }
}

variable "volume" {
  description = "The data volume of each broker: gp3, with its size in GiB, requests a second and MiB a second."
  type        = object({ gib = number, iops = optional(number, 3000), mib_per_second = optional(number, 250) })
  default     = { gib = 200 }

  validation {
    condition     = var.volume.gib >= 20 && var.volume.gib <= 16384
    error_message = "volume.gib must be from 20 to 16384. It must hold what local.retention keeps, and what closes while S3 is away."
  }
  validation {
    condition     = var.volume.iops >= 3000 && var.volume.iops <= 16000 && var.volume.mib_per_second >= 125 && var.volume.mib_per_second <= 1000
    error_message = "volume.iops must be from 3000 to 16000 and volume.mib_per_second from 125 to 1000: what gp3 has."
  }
}

variable "snapshot_on_destroy" {
  description = "Whether a volume that Terraform deletes leaves a snapshot behind."
  type        = bool
  default     = true
}

variable "volume_kms_key_arn" {
  description = "The key of the volumes."
  type        = string
}

variable "store" {
  description = "The bucket and the prefix of the cold tier."
  type        = object({ bucket = string, prefix = string })
}

variable "store_policy_arns" {
  description = "What brokers may do in the bucket: the policies writer and deleter of the module storage."
  type        = map(string)
}

variable "database" {
  description = "Where the catalogue is, and the secret with its password."
  type        = object({ host = string, port = number, database = string, username = string, secret_arn = string })
}

variable "settings" {
  description = "More settings of brokers, under Kafka's names."
  type        = map(string)
  default     = {}

  validation {
    condition     = length([for name in keys(var.settings) : name if can(regex("ssl\\.|^sasl\\.|authorizer|^super\\.users$|principals$", name))]) == 0
    error_message = "settings must not change TLS, logins or who may do what: those are set by the module, from subject_suffix and operators."
  }
}

variable "log_group" {
  description = "The log group that brokers write to, with its ARN: give it the output of the module observability. null: logs stay on the machines."
  type        = object({ name = string, arn = string })
  default     = null
}

variable "session_manager" {
  description = "Whether operators may open a shell by Session Manager. There is no SSH either way."
  type        = bool
  default     = true
}

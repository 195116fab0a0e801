variable "cluster" {
  description = "The cluster's name."
  type        = string
}

variable "region" {
  description = "The AWS region."
  type        = string
}

variable "broker_id" {
  description = "This broker's number."
  type        = number

  validation {
    condition     = var.broker_id >= 1 && floor(var.broker_id) == var.broker_id
    error_message = "broker_id must be a whole number from 1 on."
  }
}

variable "rack" {
  description = "Where it is: replicas are spread over racks."
  type        = string
}

variable "host" {
  description = "The name that clients and other brokers reach it by, which stands in its certificate."
  type        = string
}

variable "bind_address" {
  description = "The address that it listens on."
  type        = string
  default     = "0.0.0.0"
}

variable "ports" {
  description = "Its ports: for brokers, for clients, for HTTP."
  type        = object({ internal = number, clients = number, http = number })
}

variable "meta_url" {
  description = "The catalogue, without its password."
  type        = string

  validation {
    condition     = startswith(var.meta_url, "postgresql://") && !can(regex("^postgresql://[^@/]*:[^@/]*@", var.meta_url)) && !strcontains(var.meta_url, "password=")
    error_message = "meta_url must be postgresql://USER@HOST/DATABASE without a password: user data can be read by everybody on the machine. Passwords come from database_secret."
  }
}

variable "store_url" {
  description = "The object store."
  type        = string

  validation {
    condition     = startswith(var.store_url, "s3://")
    error_message = "store_url must be s3://BUCKET/PREFIX?region=…."
  }
}

variable "secrets" {
  description = "ARNs of secrets: of this broker's certificate, of the authority, and of the database (empty: none)."
  type        = object({ certificate = string, authority = string, database = string })
}

variable "volume_id" {
  description = "The volume of its data."
  type        = string
}

variable "interface_id" {
  description = "The network interface that has its address."
  type        = string
}

variable "release" {
  description = "The archive that deploy/release.sh made: its version, where it is, its SHA-256."
  type        = object({ version = string, uri = string, sha256 = string })
}

variable "log_group" {
  description = "The log group of CloudWatch; empty where logs stay on the machine."
  type        = string
  default     = ""
}

variable "settings" {
  description = "The broker's settings under Kafka's names."
  type        = map(string)
}

variable "root" {
  description = "What every path begins with: for tests, which run this without being root."
  type        = string
  default     = ""
}

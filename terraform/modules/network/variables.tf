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

variable "cidr_block" {
  description = "The addresses of the VPC. Subnets are sixteenths of it."
  type        = string
  default     = "10.60.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr_block, 1)) && can(regex("/(1[6-9]|2[0-2])$", var.cidr_block))
    error_message = "cidr_block must be an IPv4 network between /16 and /22, such as 10.60.0.0/16."
  }
}

variable "zones" {
  description = "Three availability zones. Each has one private subnet; the order must never change."
  type        = list(string)

  validation {
    condition     = length(var.zones) == 3 && length(distinct(var.zones)) == 3
    error_message = "zones must name three different availability zones, such as [\"eu-west-1a\", \"eu-west-1b\", \"eu-west-1c\"]: with fewer the loss of one takes the majority."
  }
}

variable "client_cidr_blocks" {
  description = "Networks whose clients may reach the brokers and the bootstrap address, beside the VPC itself."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for block in var.client_cidr_blocks : can(cidrhost(block, 0)) && !endswith(block, "/0")])
    error_message = "client_cidr_blocks must be IPv4 networks, and never everybody (/0): brokers are not for the internet."
  }
}

variable "operator_cidr_blocks" {
  description = "Networks from which operators reach the brokers' internal listener and their HTTP door, both of which ask for a certificate."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for block in var.operator_cidr_blocks : can(cidrhost(block, 0)) && !endswith(block, "/0")])
    error_message = "operator_cidr_blocks must be IPv4 networks, and never everybody (/0)."
  }
}

variable "ports" {
  description = "Ports of the brokers: for brokers among themselves, for clients, and for HTTP."
  type        = object({ internal = number, clients = number, http = number })
  default     = { internal = 9093, clients = 9094, http = 8443 }

  validation {
    condition     = length(distinct(values(var.ports))) == 3 && alltrue([for port in values(var.ports) : port >= 1024 && port <= 65535])
    error_message = "ports must be three different numbers from 1024 to 65535: brokers are not root."
  }
}

variable "interface_endpoints" {
  description = "AWS services that instances reach inside the VPC. There is no way to the internet, so a service that is not here is not reached."
  type        = set(string)
  default     = ["ec2", "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages"]

  validation {
    condition     = length(setsubtract(["ec2", "secretsmanager"], var.interface_endpoints)) == 0
    error_message = "interface_endpoints must have ec2 and secretsmanager: without them no broker gets its volume and its certificate."
  }
}

# The part that an emulator on this machine knows: network, bucket with its key and roles, and the secrets of brokers.
# Credentials are made up, and the endpoint is on loopback: nothing here can reach AWS.

provider "aws" {
  region                      = "us-east-1"
  access_key                  = "test"
  secret_key                  = "test"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true

  endpoints {
    ec2            = var.endpoint
    iam            = var.endpoint
    kms            = var.endpoint
    s3             = var.endpoint
    secretsmanager = var.endpoint
    sts            = var.endpoint
  }
}

variable "endpoint" {
  description = "Where the emulator is."
  type        = string
  default     = "http://127.0.0.1:4566"

  validation {
    condition     = can(regex("^http://(127\\.0\\.0\\.1|localhost):[0-9]+$", var.endpoint))
    error_message = "endpoint must be on this machine, such as http://127.0.0.1:4566: for AWS itself take terraform/envs/aws."
  }
}

module "network" {
  source = "../../modules/network"
  name   = "tiered-local"
  zones  = ["us-east-1a", "us-east-1b", "us-east-1c"]
}

module "storage" {
  source        = "../../modules/storage"
  name          = "tiered-local"
  bucket        = "tiered-local-segments"
  force_destroy = true
}

# Their values are put in by hand, as on AWS: Terraform's state never holds a key.
resource "aws_secretsmanager_secret" "broker" {
  # checkov:skip=CKV_AWS_149: of an emulator
  # checkov:skip=CKV2_AWS_57: of an emulator
  for_each                = toset(["authority", "broker-1", "broker-2", "broker-3"])
  name                    = "tiered-local/${each.value}"
  recovery_window_in_days = 0
}

output "store_url" {
  description = "What brokers on this machine take as --store, with AWS_ACCESS_KEY_ID=test and AWS_SECRET_ACCESS_KEY=test."
  value       = "s3://${module.storage.bucket}/${module.storage.prefix}?region=us-east-1&endpoint_url=${var.endpoint}"
}

output "secret_arns" {
  description = "The secrets of the brokers."
  value       = { for name, secret in aws_secretsmanager_secret.broker : name => secret.arn }
}

output "subnet_ids" {
  description = "The private subnets."
  value       = module.network.subnet_ids
}

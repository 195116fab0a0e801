# A whole cluster on AWS. `terraform apply -var-file=examples/three-brokers.tfvars`, after what docs/operations.md says.

provider "aws" {
  region = var.region
}

module "network" {
  source               = "../../modules/network"
  name                 = var.name
  tags                 = var.tags
  zones                = var.zones
  client_cidr_blocks   = var.client_cidr_blocks
  operator_cidr_blocks = var.operator_cidr_blocks
}

module "storage" {
  source        = "../../modules/storage"
  name          = var.name
  tags          = var.tags
  bucket        = var.bucket
  force_destroy = !var.keep_on_destroy
}

module "database" {
  source            = "../../modules/database"
  name              = var.name
  tags              = var.tags
  subnet_ids        = values(module.network.subnet_ids)
  security_group_id = module.network.security_group_ids["database"]
  engine_version    = var.database.engine_version
  instance_class    = var.database.instance_class
  keep_on_destroy   = var.keep_on_destroy
}

module "observability" {
  source           = "../../modules/observability"
  name             = var.name
  tags             = var.tags
  broker_ids       = keys(var.brokers)
  alarm_topic_arns = var.alarm_topic_arns
}

module "brokers" {
  source               = "../../modules/brokers"
  name                 = var.name
  tags                 = var.tags
  vpc_id               = module.network.vpc_id
  subnet_ids           = module.network.subnet_ids
  security_group_ids   = module.network.security_group_ids
  ports                = module.network.ports
  brokers              = var.brokers
  authority_secret_arn = var.authority_secret_arn
  subject_suffix       = var.subject_suffix
  operators            = var.operators
  domain               = var.domain
  release              = var.release
  ami_id               = var.ami_id
  instance_type        = var.instance_type
  volume               = var.volume
  volume_kms_key_arn   = module.storage.kms_key_arn
  snapshot_on_destroy  = var.keep_on_destroy
  store                = { bucket = module.storage.bucket, prefix = module.storage.prefix }
  store_policy_arns    = { writer = module.storage.policy_arns["writer"], deleter = module.storage.policy_arns["deleter"] }
  database             = module.database
  settings             = var.settings
  log_group            = module.observability.log_group
}

module "spark" {
  source            = "../../modules/spark"
  count             = var.spark == null ? 0 : 1
  name              = var.name
  tags              = var.tags
  subnet_ids        = values(module.network.subnet_ids)
  security_group_id = module.network.security_group_ids["spark"]
  store             = { bucket = module.storage.bucket, prefix = module.storage.prefix }
  store_policy_arns = {
    reader  = module.storage.policy_arns["reader"]
    writer  = module.storage.policy_arns["writer"]
    deleter = module.storage.policy_arns["deleter"]
  }
  artifacts       = var.spark.artifacts
  release_label   = var.spark.release_label
  meta_url        = "postgresql://${module.database.username}@${module.database.host}:${module.database.port}/${module.database.database}?sslmode=verify-full&sslrootcert=./environment/database-ca.pem"
  meta_secret_arn = module.database.secret_arn
}

# The catalogue: PostgreSQL with a synchronous standby in another zone, reached over TLS alone. A commit that the brokers
# have heard of must never be forgotten, so nothing here makes it asynchronous, and no replica is promoted.

locals {
  tags  = merge(var.tags, { Cluster = var.name })
  major = split(".", var.engine_version)[0]
  parameters = {
    "rds.force_ssl" = "1"
    # The database's word is the truth of the cluster.
    "synchronous_commit" = "on"
    # A client that was stopped in the middle of a transaction must not block all the others.
    "idle_in_transaction_session_timeout" = "10000"
    "statement_timeout"                   = "60000"
    "lock_timeout"                        = "10000"
    # A connection whose other end is gone is noticed within half a minute.
    "tcp_keepalives_idle"     = "10"
    "tcp_keepalives_interval" = "5"
    "tcp_keepalives_count"    = "4"
    # Who changes what: definitions, and statements that take longer than a second.
    "log_statement"              = "ddl"
    "log_min_duration_statement" = "1000"
  }
}

resource "aws_db_subnet_group" "this" {
  name       = "${var.name}-catalogue"
  subnet_ids = var.subnet_ids
  tags       = local.tags
}

resource "aws_db_parameter_group" "this" {
  name        = "${var.name}-catalogue-pg${local.major}"
  family      = "postgres${local.major}"
  description = "The catalogue of ${var.name}"
  tags        = local.tags

  dynamic "parameter" {
    for_each = local.parameters
    content {
      name  = parameter.key
      value = parameter.value
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_db_instance" "this" {
  # checkov:skip=CKV_AWS_161: brokers hold connections for days, and a token of IAM is good for a quarter of an hour
  # checkov:skip=CKV_AWS_118: enhanced monitoring needs a role more and says nothing that the brokers' metrics of SQL do not
  # checkov:skip=CKV_AWS_354: what Performance Insights keep is statements of the catalogue without their values; AWS encrypts them with a key of its own
  # checkov:skip=CKV_AWS_293: it is on unless keep_on_destroy is false
  identifier                  = "${var.name}-catalogue"
  db_name                     = "tiered"
  engine                      = "postgres"
  engine_version              = var.engine_version
  instance_class              = var.instance_class
  allocated_storage           = var.storage_gib
  max_allocated_storage       = var.storage_gib * 4
  storage_type                = "gp3"
  storage_encrypted           = true
  multi_az                    = true
  publicly_accessible         = false
  ca_cert_identifier          = "rds-ca-rsa2048-g1"
  db_subnet_group_name        = aws_db_subnet_group.this.name
  parameter_group_name        = aws_db_parameter_group.this.name
  vpc_security_group_ids      = [var.security_group_id]
  username                    = "tiered"
  manage_master_user_password = true

  backup_retention_period         = var.backup_days
  copy_tags_to_snapshot           = true
  deletion_protection             = var.keep_on_destroy
  skip_final_snapshot             = !var.keep_on_destroy
  final_snapshot_identifier       = var.keep_on_destroy ? "${var.name}-catalogue-last" : null
  auto_minor_version_upgrade      = true
  performance_insights_enabled    = true
  enabled_cloudwatch_logs_exports = ["postgresql"]
  tags                            = merge(local.tags, { Name = "${var.name}-catalogue" })
}

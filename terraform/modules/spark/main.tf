# Spark over the bucket: an EMR Serverless application that costs nothing while no job runs, roles that read, that read and
# know the catalogue's password, and that also rewrite, and what starts each job of spark/jobs.

data "aws_partition" "current" {}
data "aws_caller_identity" "current" {}

locals {
  tags      = merge(var.tags, { Cluster = var.name })
  partition = data.aws_partition.current.partition
  store     = "s3://${var.store.bucket}/${var.store.prefix}"
  archive = join(" ", [
    "--conf spark.archives=${var.artifacts}/environment.tar.gz#environment",
    "--conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=./environment/bin/python",
    "--conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python",
  ])
  # Where the password is, and never the password: whoever may see a job sees its arguments.
  catalogue = ["--meta", var.meta_url, "--meta-password", "aws-secret:${var.meta_secret_arn}"]
  # The arguments that are always the same; the rest is the caller's (docs/spark-jobs.md).
  jobs = {
    verify  = { role = "reader", arguments = [local.store, "--json"] }
    replay  = { role = "reader", arguments = ["--store", local.store] }
    export  = { role = "exporter", arguments = concat(["--store", local.store], local.catalogue) }
    compact = { role = "rewriter", arguments = concat(["--store", local.store], local.catalogue) }
  }
  roles = {
    reader   = ["reader"]
    exporter = ["reader"]
    rewriter = ["writer", "deleter"]
  }
  # Whoever has the catalogue's password may change what it says: a job that only reads the bucket has no use for it.
  with_catalogue = toset(["exporter", "rewriter"])
  grants         = merge([for role, policies in local.roles : { for policy in policies : "${role}-${policy}" => { role = role, policy = policy } }]...)
}

resource "aws_emrserverless_application" "this" {
  name          = "${var.name}-spark"
  release_label = var.release_label
  type          = "SPARK"
  tags          = local.tags

  maximum_capacity {
    cpu    = "${var.maximum.vcpus} vCPU"
    memory = "${var.maximum.memory_gib} GB"
    disk   = "${var.maximum.disk_gib} GB"
  }
  auto_start_configuration {
    enabled = true
  }
  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = var.idle_minutes
  }
  network_configuration {
    subnet_ids         = var.subnet_ids
    security_group_ids = [var.security_group_id]
  }
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["emr-serverless.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

resource "aws_iam_role" "job" {
  for_each           = local.roles
  name               = "${var.name}-spark-${each.key}"
  description        = "Spark jobs of ${var.name}: ${each.key}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = local.tags
}

resource "aws_iam_role_policy_attachment" "store" {
  for_each   = local.grants
  role       = aws_iam_role.job[each.value.role].name
  policy_arn = var.store_policy_arns[each.value.policy]
}

data "aws_iam_policy_document" "artifacts" {
  statement {
    sid       = "ReadTheJobs"
    actions   = ["s3:GetObject"]
    resources = ["arn:${local.partition}:s3:::${trimprefix(var.artifacts, "s3://")}/*"]
  }
}

resource "aws_iam_role_policy" "artifacts" {
  for_each = local.roles
  name     = "artifacts"
  role     = aws_iam_role.job[each.key].id
  policy   = data.aws_iam_policy_document.artifacts.json
}

data "aws_iam_policy_document" "catalogue" {
  statement {
    sid       = "ReadTheCataloguesPassword"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.meta_secret_arn]
  }

  dynamic "statement" {
    for_each = length(var.secrets_kms_key_arns) == 0 ? [] : [var.secrets_kms_key_arns]
    content {
      sid       = "KeysOfSecrets"
      actions   = ["kms:Decrypt"]
      resources = statement.value
    }
  }
}

resource "aws_iam_role_policy" "catalogue" {
  for_each = local.with_catalogue
  name     = "catalogue"
  role     = aws_iam_role.job[each.key].id
  policy   = data.aws_iam_policy_document.catalogue.json
}

# A role for each broker: it reads its own certificate and attaches its own volume, and not those of others.

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "broker" {
  for_each           = var.brokers
  name               = "${var.name}-broker-${each.key}"
  description        = "Broker ${each.key} of ${var.name}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = merge(local.tags, { Broker = each.key })
}

resource "aws_iam_instance_profile" "broker" {
  for_each = var.brokers
  name     = "${var.name}-broker-${each.key}"
  role     = aws_iam_role.broker[each.key].name
  tags     = local.tags
}

locals {
  attachments = { for pair in setproduct(keys(var.brokers), keys(var.store_policy_arns)) : "${pair[0]}-${pair[1]}" => { broker = pair[0], policy = pair[1] } }
}

resource "aws_iam_role_policy_attachment" "store" {
  for_each   = local.attachments
  role       = aws_iam_role.broker[each.value.broker].name
  policy_arn = var.store_policy_arns[each.value.policy]
}

data "aws_iam_policy_document" "broker" {
  # checkov:skip=CKV_AWS_111: PutMetricData and Session Manager's actions know no resources; the first is held to one namespace
  # checkov:skip=CKV_AWS_356: the same
  for_each = var.brokers

  statement {
    sid       = "ItsSecrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [each.value.certificate_secret_arn, var.authority_secret_arn, var.database.secret_arn]
  }
  statement {
    sid       = "TheRelease"
    actions   = ["s3:GetObject"]
    resources = ["arn:${local.partition}:s3:::${trimprefix(var.release.uri, "s3://")}"]
  }
  statement {
    sid       = "ItsVolume"
    actions   = ["ec2:AttachVolume"]
    resources = [aws_ebs_volume.data[each.key].arn]
  }
  # EC2 opens an encrypted volume in the name of who attaches it.
  statement {
    sid       = "OpenItsVolume"
    actions   = ["kms:Decrypt", "kms:DescribeKey"]
    resources = [var.volume_kms_key_arn]
  }
  statement {
    sid       = "LetEc2OpenIt"
    actions   = ["kms:CreateGrant"]
    resources = [var.volume_kms_key_arn]
    condition {
      test     = "Bool"
      variable = "kms:GrantIsForAWSResource"
      values   = ["true"]
    }
  }
  statement {
    sid       = "ItsAddress"
    actions   = ["ec2:AttachNetworkInterface"]
    resources = [aws_network_interface.broker[each.key].arn]
  }
  statement {
    sid       = "ToItsMachine"
    actions   = ["ec2:AttachVolume", "ec2:AttachNetworkInterface"]
    resources = ["arn:${local.partition}:ec2:${local.region}:${local.account}:instance/*"]
    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/Cluster"
      values   = [var.name]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/Broker"
      values   = [each.key]
    }
  }
  statement {
    sid       = "Metrics"
    actions   = ["cloudwatch:PutMetricData"]
    resources = ["*"]
    condition {
      test     = "StringEquals"
      variable = "cloudwatch:namespace"
      values   = ["Tiered"]
    }
  }
  dynamic "statement" {
    for_each = var.log_group == null ? [] : [var.log_group]
    content {
      sid       = "Logs"
      actions   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
      resources = ["${statement.value.arn}:*"]
    }
  }
  dynamic "statement" {
    for_each = length(var.secrets_kms_key_arns) == 0 ? [] : [var.secrets_kms_key_arns]
    content {
      sid       = "KeysOfSecrets"
      actions   = ["kms:Decrypt"]
      resources = statement.value
    }
  }
  dynamic "statement" {
    for_each = var.session_manager ? [1] : []
    content {
      sid = "SessionManager"
      actions = [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
      ]
      resources = ["*"]
    }
  }
}

resource "aws_iam_role_policy" "broker" {
  for_each = var.brokers
  name     = "broker"
  role     = aws_iam_role.broker[each.key].id
  policy   = data.aws_iam_policy_document.broker[each.key].json
}

# The bucket of the cold tier, its key, and what each role may do there, action by action.
# No rule of the lifecycle ever deletes a segment that the catalogue names: only the service may.

locals {
  tags    = merge(var.tags, { Cluster = var.name })
  objects = "${aws_s3_bucket.segments.arn}/${var.prefix}/*"
}

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}

data "aws_iam_policy_document" "key" {
  # checkov:skip=CKV_AWS_109: a key's policy is about that key alone, and without its account nobody could ever change it
  # checkov:skip=CKV_AWS_111: the same
  # checkov:skip=CKV_AWS_356: in a key's policy * means that key
  statement {
    sid       = "AccountDecidesByIam"
    actions   = ["kms:*"]
    resources = ["*"]
    principals {
      type        = "AWS"
      identifiers = ["arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:root"]
    }
  }
}

resource "aws_kms_key" "segments" {
  description             = "Segments of ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  policy                  = data.aws_iam_policy_document.key.json
  tags                    = merge(local.tags, { Name = "${var.name}-segments" })
}

resource "aws_kms_alias" "segments" {
  name          = "alias/${var.name}-segments"
  target_key_id = aws_kms_key.segments.key_id
}

resource "aws_s3_bucket" "segments" {
  # checkov:skip=CKV_AWS_18: the broker counts its requests (tiered_store_requests_total) and audits who deletes; access logs would need a second bucket that grows without bound
  # checkov:skip=CKV_AWS_144: a second region is a decision about cost and law; the bucket's name is an output for who wants replication
  # checkov:skip=CKV2_AWS_62: nobody waits for notifications: the catalogue knows every object
  bucket        = var.bucket
  force_destroy = var.force_destroy
  tags          = merge(local.tags, { Name = var.bucket })
}

resource "aws_s3_bucket_public_access_block" "segments" {
  bucket                  = aws_s3_bucket.segments.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "segments" {
  bucket = aws_s3_bucket.segments.id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "segments" {
  bucket = aws_s3_bucket.segments.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "segments" {
  bucket = aws_s3_bucket.segments.id
  rule {
    # One key of the bucket's for many objects: a hundredth of the requests to KMS, which are paid for.
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.segments.arn
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "segments" {
  bucket = aws_s3_bucket.segments.id

  rule {
    id     = "abort-unfinished-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }

  # What was deleted already, and nothing else.
  rule {
    id     = "forget-deleted-versions"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }
    expiration {
      expired_object_delete_marker = true
    }
  }

  depends_on = [aws_s3_bucket_versioning.segments]
}

data "aws_iam_policy_document" "bucket" {
  statement {
    sid       = "OnlyOverTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.segments.arn, "${aws_s3_bucket.segments.arn}/*"]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "segments" {
  bucket     = aws_s3_bucket.segments.id
  policy     = data.aws_iam_policy_document.bucket.json
  depends_on = [aws_s3_bucket_public_access_block.segments]
}

data "aws_iam_policy_document" "reader" {
  statement {
    sid       = "ReadObjects"
    actions   = ["s3:GetObject"]
    resources = [local.objects]
  }
  statement {
    sid       = "ListThisCluster"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.segments.arn]
    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = [var.prefix, "${var.prefix}/*"]
    }
  }
  statement {
    sid       = "Decrypt"
    actions   = ["kms:Decrypt"]
    resources = [aws_kms_key.segments.arn]
  }
}

data "aws_iam_policy_document" "writer" {
  source_policy_documents = [data.aws_iam_policy_document.reader.json]

  statement {
    sid       = "WriteObjects"
    actions   = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    resources = [local.objects]
  }
  statement {
    sid       = "FindUnfinishedUploads"
    actions   = ["s3:ListBucketMultipartUploads"]
    resources = [aws_s3_bucket.segments.arn]
  }
  statement {
    sid       = "Encrypt"
    actions   = ["kms:GenerateDataKey"]
    resources = [aws_kms_key.segments.arn]
  }
}

data "aws_iam_policy_document" "deleter" {
  statement {
    sid       = "DeleteObjects"
    actions   = ["s3:DeleteObject"]
    resources = [local.objects]
  }
}

resource "aws_iam_policy" "role" {
  for_each = {
    reader  = data.aws_iam_policy_document.reader.json
    writer  = data.aws_iam_policy_document.writer.json
    deleter = data.aws_iam_policy_document.deleter.json
  }
  name        = "${var.name}-segments-${each.key}"
  description = "The ${each.key} of segments of ${var.name}"
  policy      = each.value
  tags        = local.tags
}

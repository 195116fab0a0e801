# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
}

variables {
  name   = "example"
  bucket = "example-segments"
}

run "the_bucket_is_closed_and_encrypted" {
  command = plan
  assert {
    condition     = aws_s3_bucket_public_access_block.segments.block_public_acls && aws_s3_bucket_public_access_block.segments.block_public_policy && aws_s3_bucket_public_access_block.segments.ignore_public_acls && aws_s3_bucket_public_access_block.segments.restrict_public_buckets
    error_message = "all four blocks of public access"
  }
  assert {
    condition     = one(aws_s3_bucket_ownership_controls.segments.rule).object_ownership == "BucketOwnerEnforced"
    error_message = "access control lists are off"
  }
  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.segments.rule).bucket_key_enabled && one(one(aws_s3_bucket_server_side_encryption_configuration.segments.rule).apply_server_side_encryption_by_default).sse_algorithm == "aws:kms"
    error_message = "objects are encrypted with a key of KMS, by a key of the bucket"
  }
  assert {
    condition     = aws_kms_key.segments.enable_key_rotation
    error_message = "the key is rotated"
  }
  assert {
    condition     = !aws_s3_bucket.segments.force_destroy
    error_message = "a bucket with records in it is not destroyed"
  }
}

run "no_rule_expires_a_live_segment" {
  command = plan
  assert {
    condition     = alltrue(flatten([for rule in aws_s3_bucket_lifecycle_configuration.segments.rule : [for expiration in rule.expiration : expiration.expired_object_delete_marker == true]]))
    error_message = "only the service may delete segments: a rule may forget markers, and never expire what is current"
  }
  assert {
    condition     = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.segments.rule : length(rule.transition) == 0])
    error_message = "no segment moves to a class that has to be thawed"
  }
  assert {
    condition     = aws_s3_bucket_lifecycle_configuration.segments.rule[0].abort_incomplete_multipart_upload[0].days_after_initiation == 1
    error_message = "unfinished uploads go after a day"
  }
}

run "only_tls_and_each_role_its_actions" {
  command = plan
  assert {
    condition     = one([for statement in data.aws_iam_policy_document.bucket.statement : statement if statement.sid == "OnlyOverTls"]).effect == "Deny"
    error_message = "requests without TLS are denied"
  }
  assert {
    condition     = flatten(data.aws_iam_policy_document.deleter.statement[*].actions) == ["s3:DeleteObject"]
    error_message = "the deleter deletes, and nothing else"
  }
  assert {
    condition     = !contains(flatten([for statement in data.aws_iam_policy_document.writer.statement : tolist(statement.actions)]), "s3:DeleteObject")
    error_message = "the writer does not delete"
  }
  assert {
    condition     = toset(flatten([for statement in data.aws_iam_policy_document.reader.statement : tolist(statement.actions)])) == toset(["s3:GetObject", "s3:ListBucket", "kms:Decrypt"])
    error_message = "the reader reads"
  }
}

run "names_that_cannot_be_are_refused" {
  command = plan
  variables {
    name            = "Example"
    bucket          = "with.dots"
    prefix          = "/tiered/"
    noncurrent_days = 0
    tags            = { Cluster = "another" }
  }
  expect_failures = [var.name, var.bucket, var.prefix, var.noncurrent_days, var.tags]
}

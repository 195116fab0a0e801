# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
}

variables {
  name              = "example"
  subnet_ids        = ["subnet-1", "subnet-2"]
  security_group_id = "sg-1"
  store             = { bucket = "example-segments", prefix = "tiered" }
  store_policy_arns = { reader = "arn:aws:iam::123456789012:policy/reader", writer = "arn:aws:iam::123456789012:policy/writer", deleter = "arn:aws:iam::123456789012:policy/deleter" }
  artifacts         = "s3://releases/spark"
  meta_url          = "postgresql://tiered@db.example:5432/tiered"
  meta_secret_arn   = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:database-abcdef"
}

run "it_costs_nothing_while_no_job_runs_and_has_a_bound" {
  command = plan
  assert {
    condition     = aws_emrserverless_application.this.auto_stop_configuration[0].enabled && length(aws_emrserverless_application.this.initial_capacity) == 0
    error_message = "nothing is kept warm"
  }
  assert {
    condition     = aws_emrserverless_application.this.maximum_capacity[0].cpu == "64 vCPU"
    error_message = "all jobs together have a bound"
  }
}

run "only_compact_may_change_the_bucket" {
  command = apply
  assert {
    condition     = toset(keys(aws_iam_role_policy_attachment.store)) == toset(["reader-reader", "exporter-reader", "rewriter-writer", "rewriter-deleter"])
    error_message = "readers read"
  }
  assert {
    condition     = jsondecode(output.jobs["verify"].job_driver).sparkSubmit.entryPointArguments == ["s3://example-segments/tiered", "--json"]
    error_message = "verify looks at this cluster's store"
  }
}

run "jobs_are_told_where_the_password_is" {
  command = plan
  assert {
    condition = alltrue([for name in ["export", "compact"] : strcontains(
      join(" ", jsondecode(output.jobs[name].job_driver).sparkSubmit.entryPointArguments),
      "--meta ${var.meta_url} --meta-password aws-secret:${var.meta_secret_arn}",
    )])
    error_message = "export and compact are told the secret's name"
  }
  assert {
    condition     = alltrue([for name in ["verify", "replay"] : !contains(jsondecode(output.jobs[name].job_driver).sparkSubmit.entryPointArguments, "--meta-password")])
    error_message = "verify and replay need no database"
  }
  assert {
    condition     = data.aws_iam_policy_document.catalogue.statement[0].resources == toset([var.meta_secret_arn]) && length(data.aws_iam_policy_document.catalogue.statement) == 1
    error_message = "jobs may read this one secret"
  }
  assert {
    condition     = toset(keys(aws_iam_role_policy.catalogue)) == toset(["exporter", "rewriter"])
    error_message = "who only reads the bucket does not know the catalogue's password"
  }
}

run "a_password_in_the_url_is_refused" {
  command = plan
  variables {
    meta_url        = "postgresql://tiered:secret@db.example/tiered"
    artifacts       = "s3://releases/"
    meta_secret_arn = "secret"
    subnet_ids      = []
    release_label   = "latest"
    idle_minutes    = 0
    maximum         = { vcpus = 1, memory_gib = 1, disk_gib = 1 }
  }
  expect_failures = [var.meta_url, var.meta_secret_arn, var.artifacts, var.subnet_ids, var.release_label, var.idle_minutes, var.maximum]
}

run "a_release_with_spark_3_is_refused" {
  command = plan
  variables {
    release_label = "emr-7.12.0"
  }
  expect_failures = [var.release_label]
}

run "a_label_without_its_last_number_is_refused" {
  command = plan
  variables {
    release_label = "emr-spark-8.0"
  }
  expect_failures = [var.release_label]
}

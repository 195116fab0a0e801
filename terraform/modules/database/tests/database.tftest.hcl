# With a mocked provider: no endpoint, no credentials.
mock_provider "aws" {
  source = "../../testing/aws"
}

variables {
  name              = "example"
  subnet_ids        = ["subnet-1", "subnet-2", "subnet-3"]
  security_group_id = "sg-1"
}

run "a_commit_is_never_forgotten" {
  command = plan
  assert {
    condition     = aws_db_instance.this.multi_az && aws_db_instance.this.backup_retention_period >= 1
    error_message = "a synchronous standby, and backups"
  }
  assert {
    condition     = contains([for parameter in aws_db_parameter_group.this.parameter : "${parameter.name}=${parameter.value}"], "synchronous_commit=on")
    error_message = "commits wait for the disk and for the standby"
  }
  assert {
    condition     = aws_db_instance.this.deletion_protection && !aws_db_instance.this.skip_final_snapshot
    error_message = "it is not deleted by accident, nor without a snapshot"
  }
}

run "it_is_private_and_over_tls" {
  command = plan
  assert {
    condition     = !aws_db_instance.this.publicly_accessible && aws_db_instance.this.storage_encrypted
    error_message = "private and encrypted"
  }
  assert {
    condition     = contains([for parameter in aws_db_parameter_group.this.parameter : "${parameter.name}=${parameter.value}"], "rds.force_ssl=1")
    error_message = "TLS is required"
  }
  assert {
    condition     = aws_db_instance.this.manage_master_user_password && aws_db_instance.this.password == null
    error_message = "the password is in Secrets Manager, not in the state"
  }
}

run "a_hung_client_does_not_block_the_others" {
  command = plan
  assert {
    condition     = length(setsubtract(["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"], [for parameter in aws_db_parameter_group.this.parameter : parameter.name])) == 0
    error_message = "time-outs of the server"
  }
}

run "one_subnet_is_refused" {
  command = plan
  variables {
    subnet_ids     = ["subnet-1", "subnet-1"]
    engine_version = "12"
    instance_class = "m7g.large"
    storage_gib    = 1
    backup_days    = 0
  }
  expect_failures = [var.subnet_ids, var.engine_version, var.instance_class, var.storage_gib, var.backup_days]
}

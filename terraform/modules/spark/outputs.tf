output "application_id" {
  description = "The EMR Serverless application."
  value       = aws_emrserverless_application.this.id
}

output "role_arns" {
  description = "The roles of jobs: reader (verify, replay), exporter (export) and rewriter (compact). The last two may read the catalogue's password."
  value       = { for name, role in aws_iam_role.job : name => role.arn }
}

output "jobs" {
  description = "For each job what `aws emr-serverless start-job-run` takes: the role and the --job-driver; add the job's own arguments to entryPointArguments."
  value = { for name, job in local.jobs : name => {
    role_arn = aws_iam_role.job[job.role].arn
    job_driver = jsonencode({ sparkSubmit = {
      entryPoint            = "${var.artifacts}/spark/jobs/${name}.py"
      entryPointArguments   = job.arguments
      sparkSubmitParameters = local.archive
    } })
  } }
}

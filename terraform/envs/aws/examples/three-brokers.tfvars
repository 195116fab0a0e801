name   = "tiered"
region = "eu-west-1"
zones  = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
bucket = "example-tiered-segments"

brokers = {
  "1" = { zone = "eu-west-1a", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:tiered/broker-1-AbCdEf" }
  "2" = { zone = "eu-west-1b", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:tiered/broker-2-AbCdEf" }
  "3" = { zone = "eu-west-1c", certificate_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:tiered/broker-3-AbCdEf" }
}
authority_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:tiered/authority-AbCdEf"

release = {
  version = "0.1.0"
  uri     = "s3://example-releases/tiered-0.1.0.tar.gz"
  sha256  = "0000000000000000000000000000000000000000000000000000000000000000"
}
ami_id = "ami-0123456789abcdef0"

operator_cidr_blocks = ["10.0.0.0/24"]
spark                = { artifacts = "s3://example-releases/spark" }
tags                 = { Owner = "data-platform" }

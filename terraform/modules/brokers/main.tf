# Brokers: each has a number, a volume, an address and a name that outlive its machine, and a group of one machine that is
# replaced by itself. A group for several could not say which of them is which broker; so there is one for each.

data "aws_region" "current" {}
data "aws_partition" "current" {}
data "aws_caller_identity" "current" {}

locals {
  tags      = merge(var.tags, { Cluster = var.name })
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.name
  hosts     = { for id, broker in var.brokers : id => "broker-${id}.${var.domain}" }
  bootstrap = "bootstrap.${var.domain}"

  # A pattern, so that brokers which are added later are known to those that run already. It never reaches over a dot or a comma.
  broker_principals = "User:CN=broker-*.${var.domain}${var.subject_suffix}"
  settings = merge({
    "default.replication.factor" = "3"
    "min.insync.replicas"        = "2"
    }, var.settings, {
    "sasl.enabled.mechanisms"  = "SCRAM-SHA-512"
    "tiered.broker.principals" = local.broker_principals
    "tiered.authorizer"        = "acl"
    "super.users"              = join(";", [for name in var.operators : "User:CN=${name}${var.subject_suffix}"])
  })
}

module "user_data" {
  source   = "./user-data"
  for_each = var.brokers

  cluster      = var.name
  region       = local.region
  broker_id    = tonumber(each.key)
  rack         = each.value.zone
  host         = local.hosts[each.key]
  ports        = var.ports
  meta_url     = "postgresql://${var.database.username}@${var.database.host}:${var.database.port}/${var.database.database}?sslmode=verify-full&sslrootcert=/opt/tiered/current/database-ca.pem&passfile=/run/tiered/pgpass"
  store_url    = "s3://${var.store.bucket}/${var.store.prefix}?region=${local.region}"
  secrets      = { certificate = each.value.certificate_secret_arn, authority = var.authority_secret_arn, database = var.database.secret_arn }
  volume_id    = aws_ebs_volume.data[each.key].id
  interface_id = aws_network_interface.broker[each.key].id
  release      = var.release
  log_group    = var.log_group == null ? "" : var.log_group.name
  settings     = local.settings
}

resource "aws_ebs_volume" "data" {
  for_each          = var.brokers
  availability_zone = each.value.zone
  type              = "gp3"
  size              = var.volume.gib
  iops              = var.volume.iops
  throughput        = var.volume.mib_per_second
  encrypted         = true
  kms_key_id        = var.volume_kms_key_arn
  final_snapshot    = var.snapshot_on_destroy
  tags              = merge(local.tags, { Name = "${var.name}-broker-${each.key}", Broker = each.key })

  lifecycle {
    precondition {
      condition     = contains(keys(var.subnet_ids), each.value.zone)
      error_message = "Broker ${each.key} is in ${each.value.zone}, where the network has no subnet. Its zones: ${join(", ", keys(var.subnet_ids))}."
    }
  }
}

# The address that its name leads to. It moves from one machine to the next, so the name never has to change.
resource "aws_network_interface" "broker" {
  for_each        = var.brokers
  subnet_id       = var.subnet_ids[each.value.zone]
  security_groups = [var.security_group_ids["brokers"]]
  description     = "Broker ${each.key} of ${var.name}"
  tags            = merge(local.tags, { Name = "${var.name}-broker-${each.key}", Broker = each.key })

  lifecycle {
    # Attached by the machine itself.
    ignore_changes = [attachment]
  }
}

resource "aws_route53_zone" "private" {
  # checkov:skip=CKV2_AWS_38: DNSSEC is for public zones; this one is answered inside the VPC alone
  # checkov:skip=CKV2_AWS_39: queries of a private zone are logged by the VPC's resolver where somebody wants them
  name    = var.domain
  comment = "Brokers of ${var.name}"
  vpc {
    vpc_id = var.vpc_id
  }
  tags = local.tags
}

resource "aws_route53_record" "broker" {
  # checkov:skip=CKV2_AWS_23: it leads to the interface of the broker, which checkov does not count
  for_each = var.brokers
  zone_id  = aws_route53_zone.private.zone_id
  name     = local.hosts[each.key]
  type     = "A"
  ttl      = 60
  records  = [aws_network_interface.broker[each.key].private_ip]
}

resource "aws_route53_record" "bootstrap" {
  zone_id = aws_route53_zone.private.zone_id
  name    = local.bootstrap
  type    = "A"
  alias {
    name                   = aws_lb.bootstrap.dns_name
    zone_id                = aws_lb.bootstrap.zone_id
    evaluate_target_health = false
  }
}

# Clients ask it once where the brokers are, and then go to them directly.
resource "aws_lb" "bootstrap" {
  # checkov:skip=CKV_AWS_91: a network load balancer logs TLS listeners alone, and the TLS here ends at the brokers, which count connections and audit
  # checkov:skip=CKV_AWS_150: it holds nothing; deletion protection would only make terraform destroy fail half way
  name                             = "${var.name}-bootstrap"
  load_balancer_type               = "network"
  internal                         = true
  enable_cross_zone_load_balancing = true
  subnets                          = values(var.subnet_ids)
  security_groups                  = [var.security_group_ids["load-balancer"]]
  tags                             = local.tags
}

resource "aws_lb_target_group" "brokers" {
  # checkov:skip=CKV_AWS_378: TCP passes the brokers' own TLS through
  name                 = "${var.name}-brokers"
  port                 = var.ports.clients
  protocol             = "TCP"
  target_type          = "ip"
  vpc_id               = var.vpc_id
  deregistration_delay = 30
  preserve_client_ip   = true
  tags                 = local.tags
  health_check {
    protocol            = "TCP"
    port                = tostring(var.ports.clients)
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "clients" {
  # checkov:skip=CKV_AWS_2: TCP passes the brokers' own TLS through
  # checkov:skip=CKV_AWS_103: the same; brokers take TLS 1.2 and 1.3
  load_balancer_arn = aws_lb.bootstrap.arn
  port              = var.ports.clients
  protocol          = "TCP"
  tags              = local.tags
  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.brokers.arn
  }
}

resource "aws_lb_target_group_attachment" "broker" {
  for_each         = var.brokers
  target_group_arn = aws_lb_target_group.brokers.arn
  target_id        = aws_network_interface.broker[each.key].private_ip
  port             = var.ports.clients
}

resource "aws_launch_template" "broker" {
  for_each               = var.brokers
  name                   = "${var.name}-broker-${each.key}"
  description            = "Broker ${each.key} of ${var.name}"
  image_id               = var.ami_id
  instance_type          = var.instance_type
  user_data              = module.user_data[each.key].compressed
  update_default_version = true
  ebs_optimized          = true
  vpc_security_group_ids = [var.security_group_ids["brokers"]]
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.broker[each.key].arn
  }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
  monitoring {
    enabled = true
  }
  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_type           = "gp3"
      volume_size           = 20
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }
  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume"])
    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = "${var.name}-broker-${each.key}-machine", Broker = each.key })
    }
  }
}

# One machine at a time is replaced, by an operator (docs/operations.md) or because it died; never by terraform apply,
# which would replace all of them at once.
resource "aws_autoscaling_group" "broker" {
  for_each                  = var.brokers
  name                      = "${var.name}-broker-${each.key}"
  min_size                  = 0
  desired_capacity          = 1
  max_size                  = 1
  vpc_zone_identifier       = [var.subnet_ids[each.value.zone]]
  health_check_type         = "EC2"
  health_check_grace_period = 300
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.broker[each.key].id
    version = "$Latest"
  }
  dynamic "tag" {
    for_each = merge(local.tags, { Name = "${var.name}-broker-${each.key}", Broker = each.key })
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }
  lifecycle {
    # An operator sets it to 0 to stop a broker for good before its number is taken away.
    ignore_changes = [desired_capacity]
  }
  depends_on = [aws_iam_role_policy.broker, aws_iam_role_policy_attachment.store]
}

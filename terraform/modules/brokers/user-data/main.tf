# What a machine runs at its first start. No provider and no resource: the same text in the cloud and in tests.

locals {
  deploy = "${path.module}/../../../../deploy"
  units  = ["tiered.service", "tiered-secrets.service", "tiered-secrets.timer", "tiered-metrics.service", "tiered-metrics.timer"]

  settings = merge({
    "ssl.keystore.location"                  = "${var.root}/run/tiered/broker.pem"
    "ssl.truststore.location"                = "${var.root}/run/tiered/ca.pem"
    "listener.name.internal.ssl.client.auth" = "required"
    "http.ssl.client.auth"                   = "required"
    "tiered.audit.log"                       = "${var.root}/var/log/tiered/audit/audit.log"
    "tiered.disk.only.max.ms"                = "600000"
  }, var.settings)

  # A JSON string is a TOML string.
  broker = <<-EOT
    broker_id = ${var.broker_id}
    rack = ${jsonencode(var.rack)}
    data = "${var.root}/var/lib/tiered/data"
    meta = ${jsonencode(var.meta_url)}
    store = ${jsonencode(var.store_url)}
    log_format = "json"
    listener = ["INTERNAL=SSL://${var.bind_address}:${var.ports.internal}", "CLIENTS=SASL_SSL://${var.bind_address}:${var.ports.clients}"]
    advertise = ["INTERNAL=${var.host}:${var.ports.internal}", "CLIENTS=${var.host}:${var.ports.clients}"]
    inter_broker_listener = "INTERNAL"
    http = "https://${var.bind_address}:${var.ports.http}"

    [settings]
    ${join("\n", [for name, value in local.settings : "${jsonencode(name)} = ${jsonencode(value)}"])}
  EOT

  instance = {
    TIERED_ROOT        = var.root
    CLUSTER            = var.cluster
    AWS_REGION         = var.region
    BROKER_ID          = tostring(var.broker_id)
    VOLUME_ID          = var.volume_id
    INTERFACE_ID       = var.interface_id
    CERTIFICATE_SECRET = var.secrets.certificate
    AUTHORITY_SECRET   = var.secrets.authority
    DATABASE_SECRET    = var.secrets.database
    TIERED_VERSION     = var.release.version
    RELEASE_URI        = var.release.uri
    RELEASE_SHA256     = var.release.sha256
    TIERED_PYTHON      = "python3.11"
    HTTP_URL           = "https://${var.host}:${var.ports.http}"
  }

  agent = jsonencode({
    logs = { logs_collected = { files = { collect_list = [
      for kind, path in { broker = "broker.log", audit = "audit/audit.log" } : {
        file_path                = "/var/log/tiered/${path}"
        log_group_name           = var.log_group
        log_stream_name          = "${kind}-${var.broker_id}"
      }
    ] } } }
  })

  files = merge(
    {
      "/etc/tiered/broker.toml"     = { mode = "0644", text = local.broker }
      "/etc/tiered/instance.env"    = { mode = "0644", text = join("", [for name, value in local.instance : "${name}='${value}'\n"]) }
      "/etc/logrotate.d/tiered"     = { mode = "0644", text = file("${local.deploy}/logrotate") }
      "/etc/tiered/cloudwatch.json" = { mode = "0644", text = local.agent }
    },
    { for name in ["tiered-prepare", "tiered-metrics"] : "/usr/local/sbin/${name}" => { mode = "0755", text = file("${local.deploy}/bin/${name}") } },
    { for name in local.units : "/etc/systemd/system/${name}" => { mode = "0644", text = file("${local.deploy}/systemd/${name}") } },
  )

  script = templatefile("${path.module}/user-data.sh.tftpl", { root = var.root, files = local.files, log_group = var.log_group })
}

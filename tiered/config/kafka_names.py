"""The broker settings of Kafka 4.2 that no field of `BrokerSettings` stands for: names, types, bounds and defaults.

Owns the table, and no behaviour: what is in it is accepted, checked, kept and shown, so that configuration files and
tools of Kafka work, and has no effect here, but for what listeners read at start. Source: the `ConfigDef` of Kafka
4.2.0, and its list of what can be changed at run time.
"""

from dataclasses import replace

from tiered.config.setting import ConfigType, Setting
from tiered.config.tls import LISTENER_NAMES

OF_ALL_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""What `listener.name.NAME.…` may say for all brokers at once."""
WITHOUT_EFFECT = "Kafka's: accepted and kept, without effect here."
_OF_LISTENERS = "Read when the broker starts, for listeners with TLS: docs/security-tls.md."
_OPTION = "An option of tiered serve."
_OPTIONS = frozenset(
    {
        "advertised.listeners", "broker.id", "broker.rack", "inter.broker.listener.name", "listeners", "log.dir",
        "log.dirs", "node.id",
    }
)  # fmt: skip

# Name, type, when it can be changed (-: at start alone, all: for one broker or for all, each: for one broker), default
# (-: none), bounds. Where Kafka's default would be untrue here (classes of Java, addresses, key stores, whether there
# are tiers), ours or none stands in its place.
_TABLE = """
advertised.listeners list - -
alter.config.policy.class.name class - -
alter.log.dirs.replication.quota.window.num int - 11 1..
alter.log.dirs.replication.quota.window.size.seconds int - 1 1..
background.threads int all 10 1..
broker.id int - -
broker.rack string - -
client.quota.callback.class class - -
config.providers list all ""
controller.listener.names list - -
controller.performance.always.log.threshold.ms long - 2000 0..
controller.performance.sample.period.ms long - 60000 100..
controller.quorum.append.linger.ms int - 25 0..
controller.quorum.auto.join.enable boolean - false
controller.quorum.bootstrap.servers list - ""
controller.quorum.election.backoff.max.ms int - 1000 0..
controller.quorum.election.timeout.ms int - 1000 0..
controller.quorum.fetch.timeout.ms int - 2000 0..
controller.quorum.request.timeout.ms int - 2000 0..
controller.quorum.retry.backoff.ms int - 20 0..
controller.quorum.voters list - ""
controller.socket.timeout.ms int - 30000
create.topic.policy.class.name class - -
delegation.token.expiry.check.interval.ms long - 3600000 1..
delegation.token.expiry.time.ms long - 86400000 1..
delegation.token.max.lifetime.ms long - 604800000 1..
delegation.token.secret.key password - -
delete.records.purgatory.purge.interval.requests int - 1
early.start.listeners list - -
fetch.purgatory.purge.interval.requests int - 1000
group.consumer.assignors list - uniform,range
group.consumer.migration.policy string - bidirectional
group.consumer.regex.refresh.interval.ms int - 600000 10000..
group.coordinator.append.linger.ms int - -1 -1..
group.coordinator.rebalance.protocols list - classic,consumer,streams consumer|classic|share|streams
group.coordinator.threads int - 4 1..
group.share.assignors list - simple
group.share.delivery.count.limit int - 5 2..10
group.share.enable boolean - false
group.share.heartbeat.interval.ms int - 5000 1..
group.share.initialize.retry.interval.ms int - 30000 1..
group.share.max.heartbeat.interval.ms int - 15000 1..
group.share.max.record.lock.duration.ms int - 60000 30000..3600000
group.share.max.session.timeout.ms int - 60000 1..
group.share.max.share.sessions int - 2000 1..
group.share.max.size int - 200 1..1000
group.share.min.heartbeat.interval.ms int - 5000 1..
group.share.min.record.lock.duration.ms int - 15000 1000..30000
group.share.min.session.timeout.ms int - 45000 1..
group.share.partition.max.record.locks int - 2000 100..10000
group.share.persister.class.name string - -
group.share.record.lock.duration.ms int - 30000 1000..3600000
group.share.session.timeout.ms int - 45000 1..
group.streams.heartbeat.interval.ms int - 5000 1..
group.streams.initial.rebalance.delay.ms int - 3000 0..
group.streams.max.heartbeat.interval.ms int - 15000 1..
group.streams.max.session.timeout.ms int - 60000 1..
group.streams.max.size int - 2147483647 1..
group.streams.max.standby.replicas int - 2 0..
group.streams.min.heartbeat.interval.ms int - 5000 1..
group.streams.min.session.timeout.ms int - 45000 1..
group.streams.num.standby.replicas int - 0 0..
group.streams.session.timeout.ms int - 45000 1..
initial.broker.registration.timeout.ms int - 60000
inter.broker.listener.name string - -
internal.metadata.delete.delay.millis long - 60000
internal.metadata.log.segment.bytes int - -
internal.metadata.max.batch.size.in.bytes int - 8388608
internal.metadata.max.fetch.size.in.bytes int - 8388608
kafka.metrics.polling.interval.secs int - 10 1..
kafka.metrics.reporters list - ""
leader.replication.throttled.rate long all 9223372036854775807 0..
listener.security.protocol.map string - -
listeners list - -
log.cleaner.io.buffer.load.factor double all 0.9
log.cleaner.io.buffer.size int all 524288 0..
log.cleaner.threads int all 1 0..
log.dir list - -
log.dir.failure.timeout.ms long - 30000 1..
log.dirs list - -
log.flush.offset.checkpoint.interval.ms int - 60000 0..
log.flush.start.offset.checkpoint.interval.ms int - 60000 0..
log.initial.task.delay.ms long - 30000 0..
max.incremental.fetch.session.cache.slots int - 1000 0..
max.request.partition.size.limit int - 2000 1..
metadata.log.dir string - -
metadata.log.max.record.bytes.between.snapshots long - 20971520 1..
metadata.log.max.snapshot.interval.ms long - 3600000 0..
metadata.log.segment.bytes int - 1073741824 8388608..
metadata.log.segment.ms long - 604800000
metadata.max.idle.interval.ms int - 500 0..
metadata.max.retention.bytes long - 104857600
metadata.max.retention.ms long - 604800000
metric.reporters list all -
metrics.num.samples int - 2 1..
metrics.recording.level string - INFO
metrics.sample.window.ms long - 30000 1..
node.id int - - 0..
num.network.threads int all 3 1..
num.recovery.threads.per.data.dir int all 2 1..
num.replica.alter.log.dirs.threads int - -
offsets.commit.timeout.ms int - 5000 1..
offsets.load.buffer.size int - 5242880 1..
offsets.topic.compression.codec int - 0
offsets.topic.replication.factor short - 3 1..
offsets.topic.segment.bytes int - 104857600 1..
principal.builder.class class each -
process.roles list - - broker|controller
producer.purgatory.purge.interval.requests int - 1000
queued.max.requests int - 500 1..
remote.fetch.max.wait.ms int all 500 1..
remote.list.offsets.request.timeout.ms long all 30000 1..
remote.log.index.file.cache.total.size.bytes long all 1073741824 1..
remote.log.manager.copier.thread.pool.size int all 10 1..
remote.log.manager.copy.max.bytes.per.second long all 9223372036854775807 1..
remote.log.manager.copy.quota.window.num int - 11 1..
remote.log.manager.copy.quota.window.size.seconds int - 1 1..
remote.log.manager.expiration.thread.pool.size int all 10 1..
remote.log.manager.fetch.max.bytes.per.second long all 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num int - 11 1..
remote.log.manager.fetch.quota.window.size.seconds int - 1 1..
remote.log.manager.follower.thread.pool.size int all 2 1..
remote.log.manager.task.interval.ms long - 30000 1..
remote.log.manager.task.retry.backoff.max.ms long - 30000 1..
remote.log.manager.task.retry.backoff.ms long - 500 1..
remote.log.manager.task.retry.jitter double - 0.2 0..0.5
remote.log.manager.thread.pool.size int - 2 1..
remote.log.metadata.custom.metadata.max.bytes int - 128 0..
remote.log.metadata.manager.class.name string - -
remote.log.metadata.manager.class.path string - -
remote.log.metadata.manager.impl.prefix string - rlmm.config.
remote.log.metadata.manager.listener.name string - -
remote.log.reader.max.pending.tasks int - 100 1..
remote.log.reader.threads int all 10 1..
remote.log.storage.manager.class.name string - -
remote.log.storage.manager.class.path string - -
remote.log.storage.manager.impl.prefix string - rsm.config.
remote.log.storage.system.enable boolean - true
replica.alter.log.dirs.io.max.bytes.per.second long all 9223372036854775807 0..
replica.fetch.min.bytes int - 1
replica.high.watermark.checkpoint.interval.ms long - 5000
replica.socket.receive.buffer.bytes int - 65536
replica.socket.timeout.ms int - 30000
replication.quota.window.num int - 11 1..
replication.quota.window.size.seconds int - 1 1..
sasl.client.callback.handler.class class - -
sasl.jaas.config password - -
sasl.kerberos.kinit.cmd string each /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long each 60000
sasl.kerberos.principal.to.local.rules list each DEFAULT
sasl.kerberos.service.name string each -
sasl.kerberos.ticket.renew.jitter double each 0.05
sasl.kerberos.ticket.renew.window.factor double each 0.8
sasl.login.callback.handler.class class - -
sasl.login.class class - -
sasl.login.connect.timeout.ms int - -
sasl.login.read.timeout.ms int - -
sasl.login.refresh.buffer.seconds short each 300
sasl.login.refresh.min.period.seconds short each 60
sasl.login.refresh.window.factor double each 0.8
sasl.login.refresh.window.jitter double each 0.05
sasl.login.retry.backoff.max.ms long - 10000
sasl.login.retry.backoff.ms long - 100
sasl.mechanism.controller.protocol string - GSSAPI
sasl.oauthbearer.assertion.algorithm string - RS256
sasl.oauthbearer.assertion.claim.aud string - -
sasl.oauthbearer.assertion.claim.exp.seconds int - 300 0..86400
sasl.oauthbearer.assertion.claim.iss string - -
sasl.oauthbearer.assertion.claim.jti.include boolean - false
sasl.oauthbearer.assertion.claim.nbf.seconds int - 60 0..3600
sasl.oauthbearer.assertion.claim.sub string - -
sasl.oauthbearer.assertion.file string - -
sasl.oauthbearer.assertion.private.key.file string - -
sasl.oauthbearer.assertion.private.key.passphrase password - -
sasl.oauthbearer.assertion.template.file string - -
sasl.oauthbearer.client.credentials.client.id string - -
sasl.oauthbearer.client.credentials.client.secret password - -
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long - 100
sasl.oauthbearer.jwt.retriever.class class - -
sasl.oauthbearer.jwt.validator.class class - -
sasl.oauthbearer.scope string - -
sasl.oauthbearer.token.endpoint.url string - -
sasl.server.callback.handler.class class - -
security.inter.broker.protocol string - PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
security.providers string - -
server.max.startup.time.ms long - 9223372036854775807 0..
share.coordinator.append.linger.ms int - -1 -1..
share.coordinator.cold.partition.snapshot.interval.ms int - 300000 1..
share.coordinator.load.buffer.size int - 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot int - 500 0..
share.coordinator.state.topic.compression.codec int - 0
share.coordinator.state.topic.min.isr short - 2 1..
share.coordinator.state.topic.num.partitions int - 50 1..
share.coordinator.state.topic.prune.interval.ms int - 300000 1..
share.coordinator.state.topic.replication.factor short - 3 1..
share.coordinator.state.topic.segment.bytes int - 104857600 1..
share.coordinator.threads int - 1 1..
share.coordinator.write.timeout.ms int - 5000 1..
share.fetch.purgatory.purge.interval.requests int - 1000
socket.connection.setup.timeout.max.ms long - 30000
socket.connection.setup.timeout.ms long - 10000
socket.listen.backlog.size int - 50 1..
socket.receive.buffer.bytes int - 102400
socket.send.buffer.bytes int - 102400
ssl.allow.dn.changes boolean - false
ssl.allow.san.changes boolean - false
ssl.ca.location string - -
ssl.certificate.location string - -
ssl.cipher.suites list - ""
ssl.client.auth string - none
ssl.enabled.protocols list - TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string - https
ssl.engine.factory.class class each -
ssl.key.location password - -
ssl.key.password password - -
ssl.keymanager.algorithm string each SunX509
ssl.keystore.certificate.chain password - -
ssl.keystore.key password - -
ssl.keystore.location string - -
ssl.keystore.password password - -
ssl.keystore.type string - PEM
ssl.principal.mapping.rules string - DEFAULT
ssl.protocol string each TLSv1.3
ssl.provider string each -
ssl.secure.random.implementation string each -
ssl.trustmanager.algorithm string each PKIX
ssl.truststore.certificates password - -
ssl.truststore.location string - -
ssl.truststore.password password - -
ssl.truststore.type string - PEM
telemetry.max.bytes int - 1048576 1..
tiered.ssl.handshake.timeout.ms int - 10000 1..
transaction.state.log.load.buffer.size int - 5242880 1..
transaction.state.log.min.isr int - 2 1..
transaction.state.log.num.partitions int - 50 1..
transaction.state.log.replication.factor short - 3 1..
transaction.state.log.segment.bytes int - 104857600 1..
transaction.two.phase.commit.enable boolean - false
unclean.leader.election.interval.ms long - 300000 1..
unstable.api.versions.enable boolean - false
unstable.feature.versions.enable boolean - false
"""


def _setting(row: str) -> Setting:
    name, kind, when, default, *bounds = row.split(" ")
    type_ = ConfigType[kind.upper()]
    least, dots, most = "".join(bounds).partition("..")
    words = () if dots or not least else tuple(least.split("|"))
    if name in _OPTIONS:
        documentation = _OPTION
    else:
        documentation = _OF_LISTENERS if name in LISTENER_NAMES else WITHOUT_EFFECT
    entry = Setting(
        name=name,
        type=type_,
        default=None,
        documentation=documentation,
        minimum=_number(least) if dots else None,
        maximum=_number(most) if most else None,
        allowed=words,
        read_only=when == "-",
        of_one_broker=when == "each",
        has_effect=documentation is not WITHOUT_EFFECT,
    )
    return entry if default == "-" else replace(entry, default=entry.parse(default.replace('""', "")))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


KAFKA_SETTINGS: dict[str, Setting] = {found.name: found for found in map(_setting, _TABLE.strip().splitlines())}

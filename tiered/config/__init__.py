"""Settings: which there are, what they may be, where each value came from.

`setting` says what a setting is; `topic` and `broker` list them; `describe` shows them with their sources;
`serve` reads the command line, the environment and the file. Must stay cheap to import and know no room.
"""

from tiered.config.broker import BROKER_SETTINGS, BrokerSettings, Layer
from tiered.config.broker_changes import changed_at_run_time
from tiered.config.client_metrics import CLIENT_METRICS_SETTINGS, ClientMetricsConfig
from tiered.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_client_metrics,
    describe_dynamic_default,
    describe_group,
    describe_topic,
    for_clients,
)
from tiered.config.group import GROUP_SETTINGS, GroupConfig, check_group_config
from tiered.config.serve import ServeOptions, add_serve_arguments, load_serve_options
from tiered.config.setting import ConfigChange, ConfigOperation, ConfigSource, ConfigType, Setting, changed
from tiered.config.topic import TOPIC_SETTINGS, TopicConfig

__all__ = [
    "BROKER_SETTINGS",
    "CLIENT_METRICS_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerSettings",
    "ClientMetricsConfig",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "GroupConfig",
    "Layer",
    "ServeOptions",
    "Setting",
    "TopicConfig",
    "add_serve_arguments",
    "changed",
    "changed_at_run_time",
    "check_group_config",
    "describe_broker",
    "describe_client_metrics",
    "describe_dynamic_default",
    "describe_group",
    "describe_topic",
    "for_clients",
    "load_serve_options",
]

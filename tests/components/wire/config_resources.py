"""Configs of resources, asked and altered over the wire."""

from typing import Any

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tiered.wire import messages

DESCRIBE, ALTER_ALL, ALTER, LIST = 32, 33, 44, 74
SET, DELETE, APPEND = 0, 1, 2
INVALID_REQUEST, INVALID_CONFIG, UNSUPPORTED_VERSION = 42, 40, 35


def alter(broker: BrokerProcess, kind: int, name: str, *steps: tuple[str, int, str | None]) -> tuple[int, str]:
    make = messages.request(ALTER, 1)
    configs = [make.AlterableConfig(name=each, config_operation=how, value=value) for each, how, value in steps]
    resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    with RawConnection(broker) as connection:
        request = make.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (answer,) = connection.ask(ALTER, 1, request).responses
    return int(answer.error_code), answer.error_message or ""


def describe(broker: BrokerProcess, kind: int, name: str) -> Any:
    make = messages.request(DESCRIBE, 4)
    resource = make.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    with RawConnection(broker) as connection:
        request = make.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        (result,) = connection.ask(DESCRIBE, 4, request).results
    return result


def values(broker: BrokerProcess, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    return {each.name: (each.value, each.config_source) for each in describe(broker, kind, name).configs}


def listed(broker: BrokerProcess, *kinds: int) -> tuple[int, set[tuple[int, str]]]:
    with RawConnection(broker) as connection:
        request = messages.request(LIST, 1).ListConfigResourcesRequest(resource_types=kinds)
        answer = connection.ask(LIST, 1, request)
    return int(answer.error_code), {(each.resource_type, each.resource_name) for each in answer.config_resources}

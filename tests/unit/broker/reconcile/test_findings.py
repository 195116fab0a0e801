"""The list of findings: bounded, told once when it grows and once when it shrinks."""

import logging
from dataclasses import replace
from uuid import UUID

import pytest

from tiered.broker.reconcile.findings import MAX_FINDINGS, MAX_LINES_A_ROUND, Finding, FindingKind, Findings
from tiered.ids import TopicId, TopicPartition

TOPIC_ID = TopicId(UUID(int=7))
ORDERS = TopicPartition(TOPIC_ID, 0)
LOGGER = "tiered.broker.reconcile.findings"


def finding(number: int, *, partition: int = 0) -> Finding:
    return Finding(
        kind=FindingKind.MISSING,
        topic="orders",
        topic_id=TOPIC_ID,
        partition=partition,
        message="it is gone",
        advice="bring it back",
        name=f"segments/{number}",
        first_offset=number,
        last_offset=number,
    )


def everything(_: Finding) -> bool:
    return True


def test_a_finding_is_told_when_it_appears_and_when_it_is_well_and_keeps_its_first_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    findings = Findings()
    with caplog.at_level(logging.INFO, logger=LOGGER):
        for now_ms in (10, 20, 30):
            findings.begin_round()
            findings.replace(ORDERS, everything, [finding(1)], now_ms)
        assert findings.all() == [replace(finding(1), found_at_ms=10, seen_at_ms=30)]
        findings.replace(ORDERS, everything, [], 40)
    assert len(findings) == 0
    assert [each.getMessage() for each in caplog.records] == [
        "orders-0 offsets 1 to 1: missing: it is gone; bring it back [segments/1]",
        "well again: orders-0 offsets 1 to 1: missing: it is gone; bring it back [segments/1]",
    ]


def test_only_what_was_looked_at_again_can_be_well() -> None:
    findings = Findings()
    findings.replace(ORDERS, everything, [finding(1), finding(2)], 10)
    findings.replace(TopicPartition(TOPIC_ID, 1), everything, [finding(3, partition=1)], 10)
    findings.replace(ORDERS, lambda each: each.first_offset >= 2, [], 20)
    assert [each.first_offset for each in findings.all()] == [1, 3]
    findings.forget(lambda each: each.partition == 1)
    assert [each.first_offset for each in findings.all()] == [1]
    assert findings.by_kind()["missing"] == 1


def test_a_store_that_lost_everything_fills_neither_memory_nor_the_log(caplog: pytest.LogCaptureFixture) -> None:
    findings = Findings()
    with caplog.at_level(logging.INFO, logger=LOGGER):
        findings.replace(ORDERS, everything, [finding(number) for number in range(MAX_FINDINGS + 5)], 10)
    assert (len(findings), findings.omitted) == (MAX_FINDINGS, 5)
    assert len(caplog.records) == MAX_LINES_A_ROUND
    assert "`tiered reconcile` lists it" in caplog.records[-1].getMessage()
    caplog.clear()
    findings.begin_round()
    with caplog.at_level(logging.INFO, logger=LOGGER):
        findings.replace(ORDERS, everything, [finding(number) for number in range(MAX_FINDINGS)], 20)
    assert caplog.records == [], "what is known already is not told again"

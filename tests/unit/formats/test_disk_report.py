"""A disk's report: what was altered, cut off or cannot be is refused before anything is planned from it."""

from dataclasses import replace

import pytest

from tests.golden.regenerate import disk_report
from tiered.errors import CorruptObject
from tiered.formats.disk_report import DiskReport, decode_disk_report, encode_disk_report

REPORT = disk_report()
(LOG,) = REPORT.logs


def test_reports_are_read_as_they_were_written() -> None:
    assert decode_disk_report(encode_disk_report(REPORT)) == REPORT


@pytest.mark.parametrize("end", [0, 1, 100])
def test_a_report_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(CorruptObject):
        decode_disk_report(encode_disk_report(REPORT)[:-end] if end else b"")


def test_a_report_with_another_number_in_it_is_refused() -> None:
    with pytest.raises(CorruptObject, match="altered"):
        decode_disk_report(encode_disk_report(REPORT).replace(b'"log_end_offset":311', b'"log_end_offset":312'))


@pytest.mark.parametrize(
    "impossible",
    [
        replace(REPORT, logs=(LOG, LOG)),
        replace(REPORT, logs=(replace(LOG, local_log_start_offset=312),)),
        replace(REPORT, logs=(replace(LOG, log_start_offset=251),)),
        replace(REPORT, logs=(replace(LOG, leader_epochs=((9, 100), (2, 300))),)),
        replace(REPORT, logs=(replace(LOG, leader_epochs=((2, 300), (9, 100))),)),
        replace(REPORT, logs=(replace(LOG, leader_epochs=((2, 312),)),)),
        replace(REPORT, logs=(replace(LOG, newest_producer_id=2**63 - 1),)),
        replace(REPORT, broker_id=-1),
    ],
)
def test_what_cannot_be_is_refused(impossible: DiskReport) -> None:
    with pytest.raises(CorruptObject):
        decode_disk_report(encode_disk_report(impossible))

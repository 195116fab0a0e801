"""The soak's own figures: which faults are drawn, how silences are measured, and what the report says."""

import json
import random
from pathlib import Path

import pytest

from tests.cluster.checker import check
from tests.cluster.history import Kind, Operation, Outcome, value_of
from tests.cluster.nemesis import EVERYTHING, FAULTS, SMALL_DISK_OF, draw_round
from tests.cluster.soak import main, write_report
from tests.cluster.soak_report import SoakFigures, silences_s

PROBER = 4


def probe(partition: int, at_s: float, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(Kind.SEND, outcome, PROBER, partition, 1, value_of(PROBER, 1), 0, int(at_s * 1e6))


def figures() -> SoakFigures:
    return SoakFigures(seed=7, minutes=2.0, brokers=3, partitions=4, per_second=60.0)


def test_a_quarter_of_the_rounds_has_no_fault_and_every_kind_comes_up() -> None:
    chance = random.Random(1)
    rounds = [draw_round(chance, (1, 2, 3), 30.0) for _ in range(2000)]
    quiet = sum(not strikes for strikes in rounds)
    assert 0.2 < quiet / len(rounds) < 0.3
    assert {strike.fault.name for strikes in rounds for strike in strikes} == {fault.name for fault in FAULTS}


def test_faults_of_a_round_touch_different_things_and_end_within_it() -> None:
    chance = random.Random(2)
    for _ in range(500):
        strikes = draw_round(chance, (1, 2, 3), 30.0)
        assert len({strike.fault.touches for strike in strikes}) == len(strikes)
        assert all(strike.after_s + strike.seconds <= 30.0 for strike in strikes)


def test_a_promoted_database_is_alone_in_its_round_and_the_small_disk_has_one_broker() -> None:
    chance = random.Random(3)
    rounds = [draw_round(chance, (1, 2, 3), 30.0) for _ in range(2000)]
    alone = [strikes for strikes in rounds if any(strike.fault.touches == EVERYTHING for strike in strikes)]
    assert alone
    assert {len(strikes) for strikes in alone} == {1}
    hit = {strike.broker_id for strikes in rounds for strike in strikes if strike.fault.name == "small disk full"}
    assert hit == {SMALL_DISK_OF}


def test_the_same_seed_draws_the_same_rounds() -> None:
    def words(seed: int) -> list[str]:
        chance = random.Random(seed)
        return [strike.words() for _ in range(20) for strike in draw_round(chance, (1, 2, 3), 30.0)]

    assert words(3) == words(3)
    assert words(3) != words(4)


def test_a_silence_is_what_lies_between_two_acknowledged_probes() -> None:
    history = [probe(0, at) for at in (1.0, 1.2, 4.2, 4.4)] + [probe(1, 1.0), probe(1, 1.3)]
    history.append(probe(0, 2.0, Outcome.UNKNOWN))
    found = silences_s(history, PROBER, period_s=0.2)
    assert found[1] == []
    ((began, seconds),) = found[0]
    assert (began, round(seconds, 3)) == (1.2, 2.8)


def test_a_report_without_violation_says_passed_and_lists_every_promise(tmp_path: Path) -> None:
    run = figures()
    run.take(check([], [], []))
    path = write_report(run, tmp_path)
    text = path.read_text()
    assert text.startswith("# Soak of 2 minutes: passed")
    assert "| lost | 0 |" in text
    assert json.loads((tmp_path / "soak.json").read_text())["passed"] is True


def test_a_complaint_or_a_violation_fails_the_run_and_is_told(tmp_path: Path) -> None:
    run = figures()
    run.complaints.append("a broker did not start")
    assert not run.passed
    assert "a broker did not start" in run.to_markdown()
    other = figures()
    other.take(check([Operation(Kind.ERROR, Outcome.OK, 101, 0, 5, 1, 0, 0)], [], []))
    assert not other.passed
    assert "| an error that no consumer may see | 1 |" in other.to_markdown()


def test_a_run_whose_loops_of_java_committed_nothing_has_failed() -> None:
    def ended(kind: Kind, client: int, outcome: Outcome = Outcome.OK) -> Operation:
        return Operation(kind, outcome, client, 0, 1, 0, 0, 0)

    idle = [ended(Kind.COMMIT_TRANSACTION, 41), ended(Kind.COMMIT_TRANSACTION, 44, Outcome.UNKNOWN)]
    run = figures()
    run.take_java([*idle, ended(Kind.COMMIT_TRANSACTION, 44), ended(Kind.ABORT_TRANSACTION, 45)], (44, 45))
    assert run.passed
    assert "| transactions committed by Java | 1 |" in run.to_markdown()
    assert "| transactions aborted by Java | 1 |" in run.to_markdown()
    other = figures()
    other.take_java(idle, (44, 45))
    assert not other.passed


def test_loops_of_java_that_cannot_be_made_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"--java needs .*java is not on PATH: install it .*openjdk"):
        main(["--java", "--folder", str(tmp_path / "run")])


def test_a_broker_that_grows_or_collects_garbage_for_long_fails_the_run() -> None:
    found = figures()
    for pid, megabytes in ((1, 100), (1, 200), (2, 300), (1, 250)):
        found.take_memory(pid, megabytes * 1e6, longest_pause_ms=20.0)
    assert found.passed
    assert found.growth_mb == 150.0
    for megabytes in (251, 300):
        found.take_memory(1, megabytes * 1e6, longest_pause_ms=20.0)
    found.take_memory(3, 1e6, longest_pause_ms=1400.0)
    assert [words.split(":")[0] for words in found.complaints] == [
        "a broker has grown by 151 MB",
        "a collection of garbage took 1400 ms",
    ]
    assert "grew by 200 MB at most, to 300 MB at most; the longest collection of garbage took 1400 ms" in (
        found.to_markdown()
    )

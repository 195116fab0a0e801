"""Hostile bytes for the native decoder, under the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tiered.formats.record_batch import Compression, Record, encode_batch

HARNESS = Path(__file__).with_name("decoder_harness.c")


def corpus(folder: Path) -> list[Path]:
    """A few files of valid batches: keys, nulls, headers, many and few records, transactional and log append time."""
    files = []
    for number in range(6):
        batches = []
        for index in range(3):
            records = [
                Record(
                    offset=index * 300 + at * (1 + number % 2),
                    timestamp_ms=1_700_000_000_000 + at * (number - 2) * 1000,
                    key=None if at % 3 == 0 else b"k" * (at % 40),
                    value=None if at % 4 == 1 else b"v" * (at * 37 % 200),
                    headers=(("name", b"1"), ("größe", None), ("", b"")) if number % 2 else (),
                )
                for at in range(1 + number * 4 + index)
            ]
            batches.append(
                encode_batch(
                    records,
                    base_offset=index * 300,
                    compression=Compression.NONE,
                    producer_id=7 if number == 3 else -1,
                    producer_epoch=0 if number == 3 else -1,
                    base_sequence=0 if number == 3 else -1,
                    transactional=number == 3,
                    log_append_time_ms=5 if number == 4 else None,
                )
            )
        files.append(folder / f"seed-{number}")
        files[-1].write_bytes(b"".join(batches))
    return files


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.fail("no C compiler on PATH: install gcc or clang", pytrace=False)
    built = tmp_path_factory.mktemp("harness") / "decoder_harness"
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([compiler, *flags, "-o", str(built), str(HARNESS)], check=True)
    return built


def run(harness: Path, files: list[Path], *, seconds: float, seed: int) -> str:
    # A preloaded allocator and the sanitizer's own do not go together.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [str(harness), str(seconds), str(seed), *map(str, files)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_mutated_batches_never_make_the_decoder_touch_a_byte_that_is_not_its_own(harness: Path, tmp_path: Path) -> None:
    assert "accepted=" in run(harness, corpus(tmp_path), seconds=2, seed=1)


@pytest.mark.fuzz
def test_mutated_batches_for_long(harness: Path, tmp_path: Path) -> None:
    seconds = 60 * float(os.environ.get("TIERED_FUZZ_MINUTES", "10"))
    seed = int.from_bytes(os.urandom(4), "big")
    print(run(harness, corpus(tmp_path), seconds=seconds, seed=seed))

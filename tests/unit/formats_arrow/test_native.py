"""Where the native decoder is looked for, and that nothing breaks where it is not."""

import shutil
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tiered.errors import CorruptBatch, Invalid
from tiered.formats import native
from tiered.formats.arrow import COLUMNS, arrow_schema, decode_chunk
from tiered.formats.record_batch import Compression, Record, encode_batch

LIBRARY = f"_decode{EXTENSION_SUFFIXES[0]}"


def test_without_the_library_there_is_no_native_decoder(tmp_path: Path) -> None:
    assert native.load_from(tmp_path) is None


def test_a_library_that_does_not_load_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"\x7fELF and then nothing")
    assert native.load_from(tmp_path) is None


@pytest.mark.parametrize("source", ["int tiered_abi_version(void) { return 999; }", "int another(void) { return 1; }"])
def test_a_library_of_other_sources_is_passed_over(tmp_path: Path, source: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "no C compiler on PATH: install gcc or clang"
    file = tmp_path / "other.c"
    file.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / LIBRARY), str(file)], check=True)
    assert native.load_from(tmp_path) is None


def test_the_schema_is_sparks_kafka_schema() -> None:
    assert arrow_schema().names == list(COLUMNS)
    assert str(arrow_schema().field("timestamp").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize("pure", [False, True])
def test_nothing_gives_nothing(pure: bool) -> None:
    assert list(decode_chunk(b"", topic="t", partition=0, pure=pure)) == []


@pytest.mark.parametrize("pure", [False, True])
def test_an_unknown_column_is_named(pure: bool) -> None:
    with pytest.raises(Invalid, match="no column 'Value'"):
        decode_chunk(b"", topic="t", partition=0, columns=("Value",), pure=pure)


@pytest.mark.parametrize("pure", [False, True])
def test_a_batch_that_expands_beyond_the_bound_is_refused(pure: bool) -> None:
    for codec in Compression:
        records = [Record(offset=0, timestamp_ms=1, key=None, value=bytes(100_000))]
        batch = encode_batch(records, compression=codec)
        with pytest.raises(CorruptBatch):
            list(decode_chunk(batch, topic="t", partition=0, max_decompressed_bytes=50_000, pure=pure))


@pytest.mark.parametrize("pure", [False, True])
def test_what_was_given_before_a_bad_batch_is_right(pure: bool) -> None:
    good = encode_batch([Record(offset=0, timestamp_ms=1, key=b"k", value=b"v" * 100)])
    second = Record(offset=1, timestamp_ms=1, key=b"k", value=b"v" * 100)
    bad = bytearray(encode_batch([second], base_offset=1, compression=Compression.ZSTD))
    bad[61:] = bytes(len(bad) - 61)
    decoder = native.load()
    assert decoder is not None
    bad[17:21] = decoder.crc32c(bytes(bad[21:])).to_bytes(4, "big")
    given = []
    with pytest.raises(CorruptBatch):
        for batch in decode_chunk(good + bytes(bad), topic="t", partition=0, batch_bytes=1, pure=pure):
            given += batch.column(4).to_pylist()
    assert given in ([], [0])  # The native decoder looks one batch ahead.

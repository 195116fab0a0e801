"""What is made of the code or of measurements, whole files or parts: `make generated` writes it, and test_generated
compares it."""

from pathlib import Path

from benchmarks.kafka import page
from tests.house import document_tables, message_stubs, public_names


def generated() -> dict[Path, str]:
    """All but the public names, whose changes are looked at one by one."""
    stubs = {message_stubs.FOLDER / name: text for name, text in message_stubs.stubs().items()}
    return document_tables.pages() | page.pages() | stubs


def stale_stubs() -> set[Path]:
    return set(message_stubs.FOLDER.glob("*.pyi")) - generated().keys()


if __name__ == "__main__":
    for path in stale_stubs():
        path.unlink()
    for path, text in (generated() | {public_names.GOLDEN: public_names.text()}).items():
        path.write_text(text)

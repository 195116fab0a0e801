"""Programs of `tests/clients/java`, compiled against the Java client from Maven Central."""

import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "java"


def compiled(program: str, folder: Path) -> Path:
    """`folder`, with the client's jars and this program's classes in it: its class path is `{folder}/*:{folder}`."""
    fetch = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*fetch, f"-DoutputDirectory={folder}"], check=True, timeout=200)
    source = str(SOURCES / f"{program}.java")
    subprocess.run(["javac", "-cp", f"{folder}/*", "-d", str(folder), source], check=True, timeout=120)
    return folder

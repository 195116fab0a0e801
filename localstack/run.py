"""LocalStack without Docker: `python localstack/run.py`, and S3 is at 127.0.0.1:4566 with a bucket in it.

Owns an environment of its own, beside this file, since LocalStack pins what Tiered has newer. Needs nothing but the
standard library; downloads LocalStack from the package index once.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The better ones first: for 3.11 there is only a LocalStack that knows S3 and little else.
REQUIREMENTS = {"3.13": "requirements.txt", "3.12": "requirements.txt", "3.11": "requirements-3.11.txt"}
CANNOT_BE_HAD = 75
"""The exit code where this machine has no fitting Python or reaches no package index."""
ASK_VERSION = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def pythons() -> dict[str, str]:
    """The commands that are a Python which LocalStack runs on, by version."""
    found: dict[str, str] = {}
    # pyenv keeps those that are not chosen off the path, and puts commands on it that only say so.
    versions = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    for version in REQUIREMENTS:
        kept = sorted(map(str, versions.glob(f"{version}.*/bin/python{version}")))
        for candidate in (os.environ.get("TIERED_LOCALSTACK_PYTHON"), f"python{version}", sys.executable, *kept):
            if candidate and shutil.which(candidate) and version not in found:
                said = subprocess.run([candidate, "-c", ASK_VERSION], capture_output=True, text=True)
                if said.stdout.strip() == version:
                    found[version] = candidate
    return found


def installed(folder: Path) -> Path:
    """The Python of an environment with LocalStack in it, made where it is missing. Exits where it cannot be made."""
    known = pythons()
    if not known:
        sys.stderr.write(
            "LocalStack needs Python 3.12 or 3.13 (or 3.11, for S3 alone) with its venv module, and none is here: "
            "install one, or name it with TIERED_LOCALSTACK_PYTHON=/path/to/python3.13\n"
        )
        raise SystemExit(CANNOT_BE_HAD)
    version, base = next(iter(known.items()))
    requirements = HERE / REQUIREMENTS[version]
    stamp = folder / "installed"
    wanted = f"{version} {hashlib.sha256(requirements.read_bytes()).hexdigest()}\n"
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        sys.stderr.write(f"installing LocalStack for Python {version} in {folder}: a minute or two, once\n")
        stamp.unlink(missing_ok=True)
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile")
        for words in ((base, "-m", "venv", "--clear", str(folder)), (*pip, "--no-deps", "-r", str(requirements))):
            if subprocess.run(words, stdout=sys.stderr).returncode:
                sys.stderr.write("LocalStack could not be installed: see above\n")
                raise SystemExit(CANNOT_BE_HAD)
        stamp.write_text(wanted)
    return python


def main() -> None:
    """Becomes LocalStack."""
    parser = argparse.ArgumentParser(prog="run.py", description="Starts LocalStack on loopback, with a bucket.")
    parser.add_argument("--port", type=int, default=4566, help="where it listens on 127.0.0.1 (4566)")
    parser.add_argument("--bucket", default="tiered", help="the bucket that is made (tiered)")
    parser.add_argument("--install", action="store_true", help="install it and start nothing")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("TIERED_LOCALSTACK_VENV") or HERE / ".venv").absolute()
    python = installed(folder)
    if arguments.install:
        return
    # -I: neither this folder nor PYTHONPATH may stand for the package of the same name.
    words = [str(python), "-I", str(HERE / "serve.py"), "--port", str(arguments.port), "--bucket", arguments.bucket]
    os.execv(python, words)


if __name__ == "__main__":
    main()

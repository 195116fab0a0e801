"""Machines without a cloud: a folder each, in which the rendered user data run as they are.

Stands in for what only AWS has: metadata, packages of the distribution, block devices, systemd. Secrets and the
archive come from moto, the archive holds nothing, and the program is the one under test.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

STOP_S = 60
BOOT_S = 120

# Every stand-in writes down that it was asked, so that a test sees what a machine would have done.
_NOTED = '#!/bin/bash\necho "$(basename "$0") $*" >> "$MACHINE/asked"\n'
_STAND_INS = {
    "dnf": "",
    "useradd": "",
    "id": "exit 1\n",
    "chown": "",
    "runuser": 'shift 3; exec "$@"\n',
    "mkfs.xfs": 'echo formatted > "$2"\n',
    "mountpoint": 'test -e "$MACHINE/mounted"\n',
    "mount": 'touch "$MACHINE/mounted"\n',
    # 2 is what it says of a device without anything on it.
    "blkid": 'test -s "$2" || exit 2\n',
    "curl": """case "$*" in
  *api/token*) echo token ;;
  *instance-id*) echo i-0123456789abcdef0 ;;
  *interface-id*) echo eni-first ;;
  *macs/*) echo 02:00:00:00:00:01/ ;;
  *) exec "$REAL_CURL" "$@" ;;
esac
""",
    # Attaching makes the device appear; the rest is asked of moto.
    "aws": """case "$1 $2" in
  "ec2 attach-volume") touch "$MACHINE$DEVICE" ;;
  "ec2 attach-network-interface") ;;
  *) exec "$PYTHON" -m tests.terraform.little_aws "$@" ;;
esac
""",
    # A virtual environment that holds the program under test.
    "python3.11": """mkdir -p "$3/bin"
printf '#!/bin/bash\\necho "pip $*" >> "$MACHINE/asked"\\n' > "$3/bin/pip"
printf '#!/bin/bash\\nexec "$PYTHON" -m tiered.cli "$@"\\n' > "$3/bin/tiered"
chmod +x "$3/bin/pip" "$3/bin/tiered"
""",
    # One service after the other as its unit says, left running.
    "systemctl": """[ "$1" = start ] || exit 0
shift 2
installed() { sed "s#/usr/local#$MACHINE&#; s#/opt/#$MACHINE&#; s#/etc/#$MACHINE&#"; }
for unit in "$@"; do
  file="$MACHINE/etc/systemd/system/$unit"
  test -e "$file" || exit 5
  before=$(sed -n 's/^ExecStartPre=+//p' "$file" | installed)
  line=$(sed -n 's/^ExecStart=//p' "$file" | installed)
  [ -n "$line" ] || continue
  if [ -n "$before" ]; then $before || exit 1; fi
  setsid $line >> "$MACHINE/var/log/tiered/broker.log" 2>&1 & echo $! > "$MACHINE/$unit.pid"
done
""",
}


class Machine:
    """One that boots, dies and is replaced. Its volume is a folder that the next one mounts."""

    def __init__(self, folder: Path, *, volume_id: str, environ: Mapping[str, str]) -> None:
        self.folder = folder
        tools = folder / "stand-ins"
        device = f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
        (folder / device.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        tools.mkdir(parents=True, exist_ok=True)
        for name, does in _STAND_INS.items():
            (tools / name).write_text(_NOTED + does)
            (tools / name).chmod(0o755)
        root = Path(__file__).resolve().parents[2]
        curl = subprocess.run(["bash", "-c", "command -v curl"], capture_output=True, text=True, check=False).stdout
        self._environ = {
            **os.environ,
            **environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "MACHINE": str(folder),
            "DEVICE": device,
            "PYTHON": sys.executable,
            "PYTHONPATH": str(root),
            "REAL_CURL": curl.strip(),
            "TIERED_ROOT": str(folder),
            "TIERED_TRIES": "3",
            "TIERED_PAUSE": "0",
        }

    def boot(self, user_data: str) -> None:
        """Runs it as cloud-init would. Raises AssertionError with what it said when it fails."""
        script = self.folder / "user-data"
        script.write_text(user_data)
        said = self.folder / "boot.log"
        with said.open("w") as output:
            done = subprocess.run(
                ["bash", str(script)], cwd=self.folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, timeout=BOOT_S,
            )  # fmt: skip
        assert done.returncode == 0, said.read_text()[-4000:]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a command said there."""
        return subprocess.run(
            ["bash", "-c", shlex.join(words)], cwd=self.folder, env=self._environ, capture_output=True, text=True,
            timeout=BOOT_S, check=False,
        )  # fmt: skip

    def asked(self) -> list[str]:
        """Of the stand-ins, in order."""
        return (self.folder / "asked").read_text().splitlines()

    def log(self) -> str:
        return (self.folder / "var/log/tiered/broker.log").read_text()

    def wait_ready(self) -> None:
        """Until the broker serves. Raises AssertionError with its log when it does not."""
        deadline = time.monotonic() + BOOT_S
        while "\nready broker=" not in f"\n{self.log()}":
            assert self.is_running(), self.log()[-4000:]
            assert time.monotonic() < deadline, self.log()[-4000:]
            time.sleep(0.1)

    def is_running(self) -> bool:
        state = Path(f"/proc/{self._pid()}/stat")
        return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"

    def stop(self, sign: int = signal.SIGTERM) -> None:
        """Ends the broker; SIGKILL is the machine's sudden death."""
        if not (self.folder / "tiered.service.pid").exists() or not self.is_running():
            return
        os.kill(self._pid(), sign)
        deadline = time.monotonic() + STOP_S
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.is_running():
            os.kill(self._pid(), signal.SIGKILL)

    def _pid(self) -> int:
        return int((self.folder / "tiered.service.pid").read_text())

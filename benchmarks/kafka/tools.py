"""Apache Kafka's own load tools as clients like the others: what they print, as JSON.

Owns their arguments and how they are read. All is theirs but the topic and the acks: batches of 16 KiB, and the heap of
their scripts. Run as `python -m benchmarks.kafka.tools produce|consume …`.
"""

import argparse
import json
import re
import resource
import subprocess
import sys

from tests.clients.foreign_tools import tool

_JAVA = ("-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_PRODUCED = re.compile(r"([\d.]+) records/sec .* (\d+) ms 50th, .* (\d+) ms 99th")
_WARM_UP_SHARE = 4
_TIMEOUT_SECONDS = 600.0


def arguments(what: str, bootstrap: str, topic: str, records: int, size_bytes: int, acks: str) -> list[str]:
    """Unthrottled. The producer tells what follows its first quarter as well, when Java has compiled it."""
    of_both = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
    if what == "consume":
        return ["org.apache.kafka.tools.ConsumerPerformance", *of_both, "--timeout", "60000"]
    sent = ["--record-size", str(size_bytes), "--throughput", "-1", "--warmup-records", str(records // _WARM_UP_SHARE)]
    return ["org.apache.kafka.tools.ProducerPerformance", *of_both, *sent, "--command-property", f"acks={acks}"]


def produced(said: str) -> dict[str, float]:
    """Of the last line: before it are those of each five seconds, and that of all records."""
    rate, p50_ms, p99_ms = _PRODUCED.findall(said)[-1]
    return {"records_per_s": float(rate), "p50_ms": float(p50_ms), "p99_ms": float(p99_ms)}


def consumed(said: str) -> dict[str, float]:
    """Without the seconds in which the group is formed."""
    names, values = said.strip().splitlines()[-2:]
    found = dict(zip(names.split(", "), values.split(", "), strict=True))
    return {"records": float(found["data.consumed.in.nMsg"]), "records_per_s": float(found["fetch.nMsg.sec"])}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("--jars", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--acks", default="1")
    options = vars(parser.parse_args())
    command = [tool("java"), *_JAVA, "-cp", f"{options.pop('jars')}/*", *arguments(**options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    records, size_bytes = options["records"], options["size_bytes"]
    try:
        run = {"records": records} | (produced if options["what"] == "produce" else consumed)(done.stdout)
    except (IndexError, ValueError):
        run = {"records": 0}
    if done.returncode != 0 or run["records"] < records:
        raise SystemExit(f"{done.stdout[-1000:]}{done.stderr[-1000:]}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    run["mb_per_s"] = run["records_per_s"] * size_bytes / 1e6
    run["client_cpu_s_per_gb"] = (used.ru_utime + used.ru_stime) / (records * size_bytes) * 1e9
    print(json.dumps(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A good S3 server with one faulty proxy of its own for each broker, in one process, told what to do line by line.

Owns moto's bucket and the proxies' scripts. Counts requests by broker, method and what they are for. Reads JSON
lines from stdin, answers each with one on stdout, and ends with its stdin. Run as
`python -m tests.cluster.object_store_process BUCKET BROKERS`.
"""

import json
import sys
from collections import Counter
from contextlib import ExitStack
from typing import Any

from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind, faulty_s3
from tiered.testing.moto_s3 import moto_s3


def tally(faults: FaultyS3, counts: Counter[str]) -> None:
    """Adds what came since the last time to `counts`, and forgets it: a long run has many requests."""
    seen = faults.seen[:]
    del faults.seen[: len(seen)]
    for request in seen:
        what = "segment" if request.path.endswith(".seg") else "other"
        counts[f"{request.method} {what}"] += 1
        if request.fault is not None:
            counts[f"fault {request.fault.name}"] += 1


def main(bucket: str, brokers: int) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(moto_s3(bucket))
        proxies = {number: stack.enter_context(faulty_s3(url)) for number in range(1, brokers + 1)}
        counts: dict[int, Counter[str]] = {number: Counter() for number in proxies}
        for line in sys.stdin:
            print(json.dumps(carry_out(json.loads(line), url, proxies, counts)), flush=True)


def carry_out(order: dict[str, Any], url: str, proxies: dict[int, FaultyS3], counts: dict[int, Counter[str]]) -> Any:
    """One order, one answer."""
    for number, proxy in proxies.items():
        tally(proxy, counts[number])
    match order["do"]:
        case "urls":
            return {"truth": url, "proxies": {number: proxy.url for number, proxy in proxies.items()}}
        case "misbehave":
            proxies[order["broker"]].misbehave(
                seed=order["seed"],
                probability=order["probability"],
                kinds=tuple(S3FaultKind[name] for name in order["kinds"]),
                seconds=order["seconds"],
            )
        case "refuse_deletes":
            for proxy in proxies.values():
                for ending in order["endings"]:
                    proxy.inject(S3FaultKind.ACCESS_DENIED, method="DELETE", path_contains=ending, times=None)
        case "expire":
            for proxy in proxies.values():
                proxy.expired_keys.update(order["keys"])
        case "heal":
            for proxy in proxies.values():
                proxy.heal()
                proxy.expired_keys.update(order["expired"])
        case "counts":
            return {number: dict(count) for number, count in counts.items()}
    return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

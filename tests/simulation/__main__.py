"""`make sim`: seeds of the simulation, one or many, with or without their traces."""

import argparse
import json
import sys
import time

from tests.simulation import runner


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, default=None, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="say what happened, step by step")
    parser.add_argument("--seconds", type=float, default=None, help="begin no further seed after so long")
    parser.add_argument("--json", action="store_true", help="end with one line of figures for programs")
    parser.add_argument("--keep-going", action="store_true", help="not to end with the first violation")
    parser.add_argument("--workers", type=int, default=None, help="processes, one for each core by default")
    parser.add_argument("--again-every", type=int, default=1, help="run one seed of so many twice, to compare traces")
    told = parser.parse_args()
    runner.stable_hashes()
    started = time.monotonic()
    if told.seed is not None:
        outcome = runner.run_seed(told.seed, traces=told.trace)
        print("\n".join(outcome.trace))
        summary = runner.Summary()
        summary.add(outcome)
        print("\n".join(summary.lines(time.monotonic() - started)))
        print(outcome.violation or f"seed {told.seed}: no violation; digest {outcome.digest:x}")
        return 0 if outcome.violation is None else 1
    summary = runner.run_many(
        range(told.first, told.first + told.seeds),
        keep_going=told.keep_going,
        workers=told.workers,
        total=told.seeds,
        seconds=told.seconds,
        again_every=told.again_every,
    )
    print("\n".join(summary.lines(time.monotonic() - started)))
    if told.json:
        print(json.dumps(summary.figures()))
    return 0 if not summary.violations else 1


if __name__ == "__main__":
    sys.exit(main())

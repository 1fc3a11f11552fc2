"""Every batch on every layout and on SQLite: the long run of the differential tests.

``make soak-differential`` runs it by hand. Where the tests of every day give
each table one further layout, and half of them SQLite, here each batch runs on
the oracle, alone and batched, in several block sizes, on one, two and four
engines, and on SQLite.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.engine.differential import Play, Shares

FIRST_SEED = 200_000
BATCHES_PER_SEED = 25
BATCH_SIZE = 9


def play(seed: int) -> Shares:
    """Play one seed; a difference raises."""
    shares = Shares()
    game = Play(seed, plain=True)
    for _ in range(BATCHES_PER_SEED):
        game.next_batch(shares, BATCH_SIZE)
    game.close()
    return shares


def main() -> int:
    """Play seeds until there were enough batches; exit 1 at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + -(-options.batches // BATCHES_PER_SEED))
    total, begun_s = Shares(), time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        futures = {seed: pool.submit(play, seed) for seed in seeds}
        for seed, future in futures.items():
            try:
                total = total + future.result()
            except AssertionError as error:
                print(f"seed {seed} differs: {error}")
                pool.shutdown(cancel_futures=True)
                return 1
    total.check()
    print(total)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: 0 differences, {time.monotonic() - begun_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

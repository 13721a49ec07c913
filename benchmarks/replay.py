"""Replayed steps per second, how time grows with a lane's length, and the naive engine's distance.

Run: python benchmarks/replay.py [--steps 350] [--lanes 20] [--growth]
Ratios come from one run on one machine; nothing here gates anything.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from analyzer.caching import CACHES
from analyzer.model import Breakpoint, Lane, Part, Prompt, Range, SessionKey, Step, Usage
from analyzer.policies import parse_spec
from analyzer.pricing import PriceBook
from analyzer.replay import Engine, ReplayLane, build_lane, replay
from analyzer.sources.blocks import make_part

MODEL = "claude-sonnet-4-5-20250929"
START = datetime(2026, 11, 28, 9, tzinfo=UTC)
SPECS = (
    "recorded",
    "raw",
    "sliding-stubs:keep=10",
    "watermarks",
    "watermarks:snip_at=0.3,prune_at=0.5,summarize_at=0.7",
)


def synthetic(steps: int, seed: int) -> Lane:
    """An append-only agent lane: a call and a result of 0.5 to 2 k tokens a step."""
    r = random.Random(seed)
    line = "def step(self, value): return self.cache.read(value)  # line of a file\n"
    pool: list[Part] = [
        make_part("tools", "system", "tool_definition", line * 80, tool="bash"),
        make_part("system", "system", "text", line * 200),
        make_part("messages", "user", "text", "Please fix the parser.", starts_message=True),
    ]
    out: list[Step] = []
    at, read, known = START, 0, 0
    total = sum(part.estimate + part.envelope for part in pool)
    for n in range(steps):
        stop = len(pool)
        prompt = Prompt((Range(0, stop),), (Breakpoint(1, "5m"), Breakpoint(stop - 1, "5m")))
        usage = Usage(4, read, total - read - 4, total - read - 4, 0, r.randint(40, 200))
        out.append(
            Step(f"{seed}-{n}", "main", at, None, MODEL, usage, prompt, tuple(pool[known:stop]))
        )
        call = f"call_{seed}_{n}"
        pool += [
            make_part("messages", "assistant", "text", f"Reading file {n}.", starts_message=True),
            make_part(
                "messages", "assistant", "tool_use", f'{{"n":{n}}}', tool="bash", call_id=call
            ),
            make_part(
                "messages",
                "user",
                "tool_result",
                f"{n}\n" + line * r.randint(30, 120),
                tool="bash",
                call_id=call,
                starts_message=True,
            ),
        ]
        known, read = stop, total
        total += sum(part.estimate + part.envelope for part in pool[stop:])
        at += timedelta(seconds=r.randint(5, 30))
    key = SessionKey("bench", "", f"s{seed}")
    return Lane(key, "main", tuple(out), tuple(pool[:known]))


def best(action: Callable[[], object], repeats: int = 3) -> float:
    """Processor seconds of the fastest of some runs; other work on the machine does not count."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


def rate(lanes: list[ReplayLane], spec: str, cache: str, engine: Engine, repeats: int = 3) -> float:
    """Steps per second of one replay of each lane by itself."""
    policy, book = parse_spec(spec), PriceBook.default()
    steps = sum(len(lane.steps) for lane in lanes)

    def run() -> None:
        for lane in lanes:
            replay([lane], policy, CACHES[cache], book, engine=engine)

    run()
    return steps / best(run, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--lanes", type=int, default=20)
    parser.add_argument("--growth", action="store_true")
    options = parser.parse_args()
    lanes = [build_lane(synthetic(options.steps, seed)) for seed in range(options.lanes)]
    print(f"{options.lanes} lanes of {options.steps} steps; steps per second, fast / naive, ratio")
    for spec in SPECS:
        for cache in ("anthropic", "prefix"):
            fast = rate(lanes, spec, cache, "fast")
            naive = rate(lanes[:1], spec, cache, "naive", 1)
            print(f"{spec:55} {cache:10} {fast:10,.0f} {naive:8,.0f} {fast / naive:7.0f}x")
    if options.growth:
        growth()


def growth() -> None:
    """Exponent of time over length, from 250 to 4,000 steps."""
    print("seconds for one lane of 250, 1,000, 4,000 steps, and the exponent of 250 -> 4,000")
    for spec in SPECS:
        seconds = []
        for steps in (250, 1000, 4000):
            lane = build_lane(synthetic(steps, 1))
            seconds.append(steps / rate([lane], spec, "anthropic", "fast"))
        exponent = math.log(seconds[-1] / seconds[0]) / math.log(16)
        print(f"{spec:55} {seconds[0]:.4f} {seconds[1]:.4f} {seconds[2]:.4f}  n^{exponent:.2f}")


if __name__ == "__main__":
    main()

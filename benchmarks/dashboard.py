"""Dashboard queries over a store of many steps: overview, one session judged, its map and charts.

    python benchmarks/dashboard.py [--steps 1000000] [--per-session 200] [--keep FILE]

The store is synthetic rows, written by SQL; nothing here gates a build. Seconds, and ratios of the
95th percentile to the budget of a page (1.5 s).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analyzer import Scope, SessionDiagnosis, Store, Workspace
from analyzer.views.charts import lane_steps, prefix_map_chart, waste_by_cause
from analyzer.views.frames import sessions_table, steps_table, to_frame
from analyzer.views.overview import dearest_first, matching, totals
from analyzer.views.prefix_map import prefix_map

BUDGET_S = 1.5
ROUNDS = 20
LISTED = 5_000

# n numbers the steps of the whole store; $per of them make a session. Parts grow by two a step.
FILL = """
INSERT INTO files SELECT 1, 1, 'steps', 'p0', '', '/traces', 0, '\\x00'::BLOB, 'none', now(), $steps, 0, 0;
INSERT INTO recordings
SELECT s, 1, 'p' || (s % 8), 'user' || (s % 40), 'session-' || s, 'main', NULL, NULL, $per, 2 * $per,
       TIMESTAMP '2026-01-01' + INTERVAL (s) MINUTE, TIMESTAMP '2026-01-02' + INTERVAL (s) MINUTE
FROM range($sessions) t(s);
INSERT INTO steps
SELECT n // $per, n % $per, 'key-' || n,
       TIMESTAMP '2026-01-01' + INTERVAL (n // $per) MINUTE + INTERVAL (20 * (n % $per)) SECOND,
       NULL, 'claude-sonnet-4-5', 'anthropic', true, 3,
       CASE WHEN n % 3 = 0 THEN 12000 ELSE 20000 + 500 * (n % $per) END,
       CASE WHEN n % 3 = 0 THEN 8500 + 500 * (n % $per) ELSE 500 END, NULL, NULL, 300, NULL,
       [0, (2 * (n % $per) + 2)::INTEGER], NULL, NULL, true, NULL, false, NULL, NULL, 'tool_use',
       NULL, NULL, NULL, n, NULL, true, n % $per
FROM range($steps) t(n);
INSERT INTO parts
SELECT n // (2 * $per), n % (2 * $per), 'messages', CASE WHEN n % 2 = 0 THEN 'user' ELSE 'assistant' END,
       CASE WHEN n % 2 = 0 THEN 'tool_result' ELSE 'tool_use' END, 'read_file', 'call-' || (n // 2),
       unhex(md5('part-' || n)), 900, 240, 8, true, false, NULL, NULL, NULL
FROM range(2 * $steps) t(n);
INSERT INTO sessions
SELECT 'p' || (s % 8), 'user' || (s % 40), 'session-' || s, 'steps', NULL,
       TIMESTAMP '2026-01-01' + INTERVAL (s) MINUTE, TIMESTAMP '2026-01-02' + INTERVAL (s) MINUTE,
       $per, 1, 0, ['claude-sonnet-4-5'], 3 * $per, 60000 * $per, 9000 * $per, 300 * $per, s
FROM range($sessions) t(s);
INSERT INTO facts
SELECT 'p' || (s % 8), 'user' || (s % 40), 'session-' || s, '1', s FROM range($sessions) t(s);
INSERT INTO step_facts
SELECT 'p' || (n // $per % 8), 'user' || (n // $per % 40), 'session-' || (n // $per), 'main',
       n % $per, 20503 + 500 * (n % $per), 2 * (n % $per) + 2, 0, NULL, 0.05 + (n % 97) / 1000, 20,
       (20503 + 500 * (n % $per)) / 200000, 20000, NULL, 20000, CASE WHEN n % 3 = 0 THEN 8000 ELSE 0 END,
       CASE WHEN n % 3 = 0 THEN 'routing-or-eviction' ELSE 'healthy' END, true,
       CASE WHEN n % 3 = 0 THEN 0.02 ELSE 0 END, false
FROM range($steps) t(n);
INSERT INTO findings
SELECT 'p' || (s % 8), 'user' || (s % 40), 'session-' || s, k,
       ['routing-or-eviction', 'tools-changed', 'ttl-expired'][k + 1], 'main', 0, $per - 1, $per // 3,
       100000, 0.02 * ($per // 3) / (k + 1), k < 2, true, '{}', 'remedy'
FROM range($sessions) t(s), range(3) f(k);
"""


def fill(path: Path, steps: int, per_session: int) -> None:
    """Write a store of so many steps."""
    values = {"steps": steps, "per": per_session, "sessions": steps // per_session}
    text = FILL
    for name, value in values.items():
        text = text.replace(f"${name}", str(value))
    store = Store.open(path, "write")
    try:
        cursor = store.begin().cursor()
        for statement in text.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        cursor.close()
        store.publish()
    finally:
        store.abandon()


def measure(name: str, work: Callable[[], object], rounds: int = ROUNDS) -> None:
    """Print median, 95th percentile, and its ratio to the budget."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    p95 = statistics.quantiles(seconds, n=20)[-1]
    median = statistics.median(seconds)
    print(f"{name:42} median {median:6.3f} s   p95 {p95:6.3f} s   {p95 / BUDGET_S:5.0%} of a page")


def main() -> None:
    """Fill a store, and measure what each page asks of it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=1_000_000)
    options.add_argument("--per-session", type=int, default=200)
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "many.duckdb"
        if not path.exists():
            start = time.perf_counter()
            fill(path, given.steps, given.per_session)
            print(
                f"store: {path.stat().st_size / 1e6:,.0f} MB in {time.perf_counter() - start:.0f} s"
            )
        everything, one = Scope.everything(), Scope("p3")
        with Store.open(path) as store:
            space = Workspace(store)
            frame = space.sessions()
            print(f"{frame.height:,} sessions, {int(frame['n_steps'].sum()):,} steps")
            measure("open the store", lambda: Store.open(path).close())
            measure("query sessions, whole store", lambda: store.query("sessions", everything))
            measure("query sessions, one project", lambda: store.query("sessions", one))
            measure("query causes", lambda: store.query("causes", everything))
            measure("totals and filter", lambda: totals(matching(frame, "session-1")))
            listed = dearest_first(frame, LISTED)
            measure("table of sessions", lambda: to_frame(sessions_table(listed)))
            causes = store.query("causes", everything).to_dicts()
            measure("chart of causes", lambda: waste_by_cause(causes, 1.0))
            key = space.keys()[0]
            measure("load one session", lambda: space.load(key, content=True))
            measure("load and judge one session", lambda: Workspace(store).diagnose(key), 10)
            _measure_page(space.diagnose(key))


def _measure_page(diagnosis: SessionDiagnosis) -> None:
    """What the page of one session makes of its diagnosis."""
    ledger = diagnosis.lanes[0].ledger
    grid = prefix_map(ledger)
    assert grid is not None

    def steps_chart() -> object:
        return lane_steps(diagnosis, "main").figure.to_json()

    def map_chart() -> object:
        return prefix_map_chart(grid, ledger.rows).figure.to_json()

    measure("chart of steps", steps_chart, 10)
    measure("prefix map", lambda: prefix_map(ledger))
    measure("chart of the map", map_chart, 10)
    measure("table of steps", lambda: to_frame(steps_table(diagnosis, "main")))


if __name__ == "__main__":
    sys.exit(main())

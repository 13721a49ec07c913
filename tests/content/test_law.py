"""Content decides nothing: figures, verdicts and findings are the same whatever is kept of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.content import MODES
from analyzer.intake import ingest
from analyzer.ledger import StepRow
from analyzer.workspace import Workspace
from tests.builders import Shape, anthropic_records, clear_once, keep_newest, write_lines
from tests.content.secrets import PLANTED

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"
TEXTS = ("was", "now", "content", "varies", "changed", "changes", "summary")
"""Evidence that quotes the content, or says what sort of text differs."""
FIGURES = [f.name for f in fields(StepRow) if f.name not in ("record", "previous")]
POLICIES = ("raw", "sliding-stubs:keep=5", "watermarks")


def judged(store: Path) -> list[Any]:
    """Everything that a diagnosis of a store says, without what quotes the content."""
    space = Workspace.open(store)
    out: list[Any] = []
    for key in sorted(space.keys()):
        diagnosis = space.diagnose(key)
        out.append(key)
        for row, verdict in diagnosis.rows:
            figures = [getattr(row, name) for name in FIGURES]
            out.append((figures, verdict.kind, verdict.inferred, verdict.expected))
        for finding in diagnosis.findings:
            evidence = {k: v for k, v in finding.evidence.items() if k not in TEXTS}
            out.append((finding.kind, finding.steps, finding.wasted_usd, finding.remedy, evidence))
    space.close()
    return out


def replayed(store: Path) -> list[Any]:
    """What the policies would have cost, and how well the recorded one is met."""
    space = Workspace.open(store)
    found = space.compare(space.keys(), POLICIES)
    space.close()
    return [found.caches, found.fidelity, found.recorded, *found.outcomes]


def stores(folder: Path, *paths: Path) -> dict[str, Path]:
    out = {mode: folder / f"{mode}.duckdb" for mode in MODES}
    for mode, store in out.items():
        ingest(paths, store, content=mode, workers=0)
    return out


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stores(tmp_path_factory.mktemp("samples"), SAMPLES)


def test_the_samples_are_judged_alike_in_every_mode(samples: dict[str, Path]) -> None:
    full = judged(samples["full"])
    assert len(full) > 400
    assert judged(samples["redacted"]) == full
    assert judged(samples["none"]) == full


def test_the_samples_are_replayed_alike_in_every_mode(samples: dict[str, Path]) -> None:
    full, redacted, none = (replayed(samples[mode]) for mode in ("full", "redacted", "none"))
    assert redacted == full
    assert none[:-1] == full[:-1]
    # The last one cuts inside of texts, which without them is only estimated.
    assert none[-1].result.cost_usd == pytest.approx(full[-1].result.cost_usd, rel=0.01)


SHAPES: tuple[Shape, ...] = (keep_newest(4), clear_once(9, 2), lambda messages, step: None)


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(SHAPES),
    st.sampled_from(PLANTED),
    st.sampled_from([12, 900]),
)
def test_sessions_full_of_secrets_are_judged_alike(
    tmp_path_factory: pytest.TempPathFactory, seed: int, shape: Shape, planted: Any, gap: int
) -> None:
    folder = tmp_path_factory.mktemp("made")

    def system(step: int) -> str:
        return f"{planted.text}\nrun {step // 5} at 2026-06-01T09:{step // 5:02d}:00Z"

    def tools(step: int) -> int:
        return 3 + (step > 10)

    records = anthropic_records(
        14, seed=seed, shape=shape, system=system, tools=tools, gap=lambda step: gap
    )
    found = stores(folder, write_lines(folder / "run.jsonl", records))
    full = judged(found["full"])
    assert judged(found["redacted"]) == full
    assert judged(found["none"]) == full


@pytest.mark.data
@pytest.mark.parametrize("folder", ["codex", "langfuse", "opencode", "pi", "raw-api"])
def test_real_recordings_are_judged_alike(folder: str, shared_data: Path, tmp_path: Path) -> None:
    found = stores(tmp_path, shared_data / "traces" / folder)
    full = judged(found["full"])
    assert full
    assert judged(found["redacted"]) == full
    assert judged(found["none"]) == full

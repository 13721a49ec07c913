from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from analyzer.sources import SOURCES
from analyzer.sources.base import read_head

AGENTS = {
    "claude-code": "claude-code",
    "codex": "codex",
    "opencode": "opencode",
    "pi": "pi",
    "openclaw": "pi",
    "gemini-cli": "gemini-cli",
    "cline": "cline",
    "copilot-cli": "copilot-cli",
}


@pytest.mark.data
def test_every_real_recording_is_detected_as_its_own_format_and_no_other(
    shared_data: Path,
) -> None:
    seen: Counter[str] = Counter()
    wrong = []
    for path in sorted((shared_data / "traces").rglob("*.json*")):
        family = path.relative_to(shared_data / "traces").parts[0]
        head = read_head(path)
        found = {name for name in set(AGENTS.values()) if SOURCES[name].detect(head)}
        # The one file of OpenClaw that is no session: the telemetry beside it.
        own = None if ".trajectory." in path.name else AGENTS.get(family)
        if found != ({own} - {None}):
            wrong.append((str(path.relative_to(shared_data)), found))
        seen[family] += 1
    assert not wrong
    assert seen.keys() >= AGENTS.keys()

from __future__ import annotations

import pytest

from analyzer.pricing import canonical


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("Claude-Opus-4.8", "claude-opus-4-8"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-opus-4.8:thinking", "claude-opus-4-8"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("bedrock/global.anthropic.claude-opus-4-8-v1:0", "claude-opus-4-8"),
        ("claude-opus-4-6[1m]", "claude-opus-4-6"),
        ("claude-4.5-sonnet", "claude-sonnet-4-5"),
        ("claude-haiku-3.5", "claude-3-5-haiku"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("<synthetic>", ""),
        ("  ", ""),
    ],
)
def test_a_model_has_one_name_however_it_is_written(written: str, name: str) -> None:
    assert canonical(written) == name

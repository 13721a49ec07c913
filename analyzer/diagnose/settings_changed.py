"""Another model, or other request parameters that are part of the cache key."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.pricing import canonical

TOLD = {
    "model_changed": "the model",
    "prompt_cache_key_changed": "the cache key",
    "text_format_changed": "the response format",
    "reasoning_effort_changed": "the reasoning effort",
    "verbosity_changed": "the verbosity",
    "service_tier_changed": "the service tier",
}
"""Reasons of the providers' cache diagnostics (Anthropic and OpenAI, read 2026-11)."""


class SettingsChanged:
    """Entries belong to one model and one set of parameters; a switch starts the cache over."""

    kind: ClassVar[str] = "settings-changed"
    remedy: ClassVar[str] = (
        "Keep the model and the request parameters fixed inside a session; send side work to another "
        "model from a lane of its own instead of switching the main loop."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        before, now = case.row.previous, case.row.record
        if before is None:
            return None
        if before.model and now.model and canonical(before.model) != canonical(now.model):
            return Verdict(
                self.kind,
                {
                    "summary": f"the model changed from {before.model} to {now.model}",
                    "setting": "model",
                    "was": before.model,
                    "now": now.model,
                },
            )
        if case.told in TOLD:
            return case.says(self.kind, f"{TOLD[case.told]} changed")
        if not case.recorded or before.prompt is None or now.prompt is None:
            return None
        was, is_ = dict(before.prompt.settings), dict(now.prompt.settings)
        changed = sorted(k for k in was.keys() | is_.keys() if was.get(k) != is_.get(k))
        if not changed:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"request parameters changed: {', '.join(changed)}",
                "setting": changed[0],
                "was": was.get(changed[0]),
                "now": is_.get(changed[0]),
            },
        )

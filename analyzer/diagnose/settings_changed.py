"""Another model, or other request parameters that are part of the cache key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict
from analyzer.pricing import canonical

TOLD = {
    "model_changed": "the model",
    "text_format_changed": "the response format",
    "reasoning_effort_changed": "the reasoning effort",
    "verbosity_changed": "the verbosity",
    "service_tier_changed": "the service tier",
}
"""Reasons of the providers' cache diagnostics (Anthropic and OpenAI, read 2026-11)."""
USUAL: Mapping[str, frozenset[str]] = {
    "disable_parallel_tool_use": frozenset({"false"}),
    "effort": frozenset({"high"}),
    "output_config": frozenset({"{}", '{"effort":"high"}'}),
    "parallel_tool_calls": frozenset({"true"}),
    "speed": frozenset({"standard"}),
    "thinking": frozenset({'{"type":"disabled"}', "disabled"}),
    "tool_choice": frozenset({'{"type":"auto"}', "auto"}),
}
"""Values that mean the same as leaving the parameter out on Anthropic's models. Source: Anthropic,
prompt caching and effort, 2026-09."""
APART = frozenset({"prompt_cache_key"})
"""A setting with a rule of its own."""
LABELS = ("effort", "speed", "inference_geo")
"""What responses and transcripts say of parameters that they do not show."""
UNSAID = frozenset({"", "not_available", "unknown"})


class SettingsChanged:
    """Entries belong to one model and one set of parameters; a switch starts the cache over."""

    kind: ClassVar[str] = "settings-changed"
    remedy: ClassVar[str] = (
        "Keep the model and the request parameters fixed inside a session; send side work to another "
        "model from a lane of its own instead of switching the main loop."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if case.row.previous is None:
            return None
        changed = _named(case) or _sent(case) or _labelled(case) or _images(case)
        if case.told in TOLD and (changed is None or changed[0] != "model"):
            return case.says(self.kind, f"{TOLD[case.told]} changed")
        if changed is None:
            return None
        setting, was, now, others = changed
        more = f" (and {', '.join(others)})" if others else ""
        said = (was or "unset", now or "unset")
        return Verdict(
            self.kind,
            {
                "summary": f"{_words(setting)} changed from {said[0]} to {said[1]}{more}",
                "setting": setting,
                "was": was,
                "now": now,
                "others": list(others),
            },
        )


_Change = tuple[str, str | None, str | None, tuple[str, ...]]
"""The setting, what it was, what it is, and further settings that changed."""


def _words(setting: str) -> str:
    names = {"inference_geo": "the region", "images": "the presence of images"}
    return names.get(setting, f"the {setting.replace('_', ' ')}")


def _named(case: Case) -> _Change | None:
    """The model, or the provider behind a gateway: neither reads the other's entries."""
    before, now = case.row.previous, case.row.record
    if before is None:
        return None
    if before.model and now.model and canonical(before.model) != canonical(now.model):
        return "model", before.model, now.model, ()
    if before.provider and now.provider and before.provider.lower() != now.provider.lower():
        return "provider", before.provider, now.provider, ()
    return None


def _sent(case: Case) -> _Change | None:
    """Parameters of recorded requests."""
    if not case.recorded or case.before is None or case.prompt is None:
        return None
    was, now = _effective(case, case.before.settings), _effective(case, case.prompt.settings)
    names = sorted(k for k in was.keys() | now.keys() if was.get(k) != now.get(k))
    if not names:
        return None
    return names[0], was.get(names[0]), now.get(names[0]), tuple(names[1:])


def _effective(case: Case, settings: tuple[tuple[str, str], ...]) -> dict[str, str]:
    usual = USUAL if case.cache == "anthropic" else {}
    return {k: v for k, v in settings if k not in APART and v not in usual.get(k, ())}


def _labelled(case: Case) -> _Change | None:
    """Parameters that the response or the transcript names, where both steps do."""
    before, now = case.row.previous, case.row.record
    if before is None:
        return None
    was, is_ = dict(before.labels), dict(now.labels)
    names = [*LABELS, *(("service_tier",) if case.cache.startswith("openai") else ())]
    for name in names:
        a, b = was.get(name, ""), is_.get(name, "")
        if a != b and a not in UNSAID and b not in UNSAID:
            return name, a, b, ()
    return None


def _images(case: Case) -> _Change | None:
    """The first image in a prompt, or the last one gone, loses the messages level of Anthropic's."""
    if not case.recorded or case.cache != "anthropic" or case.before is None or case.prompt is None:
        return None
    was, now = (
        any(p.kind == "image" for p in case.parts(x.ranges)) for x in (case.before, case.prompt)
    )
    return ("images", _some(was), _some(now), ()) if was != now else None


def _some(present: bool) -> str:
    return "some" if present else "none"

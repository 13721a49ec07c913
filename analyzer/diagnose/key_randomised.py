"""The routing key of the request differs, so it is looked up elsewhere."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict

KEY = "prompt_cache_key"


class KeyRandomised:
    """Read off the request, or off the provider's diagnostics."""

    kind: ClassVar[str] = "key-randomised"
    remedy: ClassVar[str] = (
        "Send one `prompt_cache_key` for all requests that share a prefix (the session id), not a new "
        "one with each request."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        if case.told == f"{KEY}_changed":
            return case.says(self.kind, "the cache key changed")
        if not case.recorded or case.before is None or case.prompt is None:
            return None
        was, now = (dict(p.settings).get(KEY) for p in (case.before, case.prompt))
        if was == now:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"`{KEY}` changed; equal content under another key is not found",
                "setting": KEY,
                "was": was,
                "now": now,
            },
        )

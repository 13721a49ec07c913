"""Another process sent this request: the beginning of the prompt was rendered anew."""

from __future__ import annotations

from typing import ClassVar

from analyzer.diagnose.base import Case, Verdict


class Resume:
    """Where the content is out of sight, but the recording shows a new process or client."""

    kind: ClassVar[str] = "resume"
    remedy: ClassVar[str] = (
        "Store what was sent and send the same bytes after a resume; pin the client's version for the "
        "length of a session, and compact before resuming a long one."
    )

    def judge(self, case: Case) -> Verdict | None:
        """See `Rule`."""
        how = None if case.recorded or case.told is not None else _boundary(case)
        if how is None:
            return None
        return Verdict(
            self.kind,
            {
                "summary": f"{how}; the transcript shows no other change, and only "
                f"{case.row.usage.cache_read or 0:,} of {case.row.expected_read or 0:,} tokens were read",
                "boundary": how,
                "gap_s": case.row.gap_s,
            },
            inferred=True,
        )


def _boundary(case: Case) -> str | None:
    before, now = case.row.previous, case.row.record
    if before is None:
        return None
    was, is_ = (dict(step.labels).get("version") for step in (before, now))
    if was and is_ and was != is_:
        return f"the client's version changed from {was} to {is_}"
    if case.ledger.lane.previous is before or before.copied_from != now.copied_from:
        return "the session was resumed from another recording"
    return None

"""What a text is by how it reads: a placeholder, a summary, the words of a program.

Asked once, while a file is read, and kept as marks of the part: a store need not hold the text.
"""

from __future__ import annotations

import re

PLACEHOLDER_MAX_CHARS = 400
SUMMARY_CHARS = 400
"""A summary says what it is at its beginning."""
_PLACEHOLDER = re.compile(
    r"""^\W{0,3}(
        (old|older|previous|earlier|stale)\b.{0,60}\b(result|output|content|message|turn)s?\b.{0,80}
            \b(cleared|removed|omitted|elided|pruned|trimmed|compacted|hidden|dropped|stubbed)
      | (tool|function|result|output|content|observation|message)s?\b.{0,60}
            \b(cleared|removed|omitted|elided|pruned|trimmed|compacted|hidden|dropped|stubbed|evicted)\b
      | stub\b
      | (cleared|elided|pruned|omitted|compacted|redacted\ to\ save)\b.{0,80}
      | persisted-output
      | \.\.\.\s*\[?(truncated|omitted)
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_SUMMARY = re.compile(
    r"continued from a previous conversation|conversation (was|has been) (compacted|summari[sz]ed)"
    r"|summary of (the|our) (conversation|previous|work|session)|^\W{0,3}(context )?(summary|checkpoint)\b"
    r"|handoff (note|summary)",
    re.IGNORECASE,
)


def reads_like_placeholder(text: str) -> bool:
    """Whether a short text says that content was taken away."""
    short = text.strip()
    return len(text) <= PLACEHOLDER_MAX_CHARS and _PLACEHOLDER.search(short) is not None


def reads_like_summary(text: str) -> bool:
    """Whether a text begins like a summary of the conversation before it."""
    return _SUMMARY.search(text[:SUMMARY_CHARS]) is not None


def opens_with_markup(text: str) -> bool:
    """Whether a text begins with a tag, as what a program puts into a conversation does."""
    return text.lstrip().startswith("<")

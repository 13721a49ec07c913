"""On which terms a request was billed, from the words that APIs and senders write beside its usage.

Source: Anthropic, service tiers, fast mode and data residency; OpenAI, Batch, Flex and priority
processing; Amazon Bedrock, service tiers; read 2026-11. A word that is none of these says nothing
of the price, so the usual price holds; the word itself stays in the step's labels.
"""

from __future__ import annotations

_TERMS = {
    "batch": "batch",
    "flex": "flex",
    "priority": "priority",
    "fast": "fast",
    "ultrafast": "ultrafast",
    "scale": "scale",
    "reserved": "reserved",
}
_REGIONS = {"us": "us"}


def terms_of(
    tier: str | None, speed: str | None = None, region: str | None = None
) -> tuple[str, ...]:
    """Terms of a request: its service tier, its speed, and where it was confined to."""
    found = {_TERMS.get((word or "").strip().lower()) for word in (tier, speed)}
    found.add(_REGIONS.get((region or "").strip().lower()))
    return tuple(sorted(term for term in found if term))

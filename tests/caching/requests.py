"""Small requests for cache tests: parts are numbers, sizes default to 2,000 tokens a part."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.caching import ListPrefix, Mark, Request
from analyzer.model import Ttl

MODEL = "claude-sonnet-4-6"


def request(
    parts: Sequence[int],
    at: float = 0,
    *,
    marks: Sequence[int] = (),
    ttl: Ttl = "5m",
    tokens: int | Sequence[int] = 2000,
    ready_in: float = 1,
    model: str = MODEL,
    scope: str = "",
    tools_end: int = 0,
    system_end: int = 0,
    settings: tuple[str, str, str] = ("", "", ""),
    collapsed: list[bool] | None = None,
    implicit: bool = True,
) -> Request:
    sizes = [tokens] * len(parts) if isinstance(tokens, int) else list(tokens)
    return Request(
        at=at,
        ready_at=at + ready_in,
        model=model,
        prefix=ListPrefix(list(parts), sizes, collapsed),
        marks=tuple(Mark(n, ttl) for n in marks),
        scope=scope,
        tools_end=tools_end,
        system_end=system_end,
        settings=settings,
        implicit=implicit,
    )


def marked(request: Request, *marks: tuple[int, Ttl]) -> Request:
    """The same request with marks of mixed lifetimes."""
    return Request(
        request.at,
        request.ready_at,
        request.model,
        request.prefix,
        tuple(Mark(n, ttl) for n, ttl in marks),
        request.scope,
        request.tools_end,
        request.system_end,
        request.settings,
    )

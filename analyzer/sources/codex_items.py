"""The items of a Codex conversation (OpenAI Responses form) as parts; one item is one message."""

from __future__ import annotations

from dataclasses import replace

from analyzer.model import Kind, Part
from analyzer.sources.blocks import make_part, message_parts, text_of
from analyzer.sources.decode import Json, JsonObject, dump, get_array, get_text

_CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "tool_search_call",
        "image_generation_call",
    }
)
_SUMMARIES = frozenset({"compaction", "compaction_summary", "context_compaction"})
_NOT_SENT = frozenset({"ghost_snapshot", "compaction_trigger"})


def by_model(item: JsonObject) -> bool:
    """Whether the model made this item."""
    kind = get_text(item, "type")
    return (
        kind == "reasoning"
        or kind in _CALLS
        or (kind == "message" and item.get("role") == "assistant")
    )


class Items:
    """Turns items into parts; remembers which call was of which tool."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}

    def parts(self, item: JsonObject) -> list[Part]:
        """The parts of one item; none where the client never sends it."""
        kind = get_text(item, "type") or ""
        if kind == "message":
            return [marked.part for marked in message_parts(item, self.tools)]
        if kind == "reasoning":
            texts = [*get_array(item, "summary"), *get_array(item, "content")]
            return [_part("assistant", "thinking", text_of(texts), salt=_secret(item))]
        if kind in _CALLS:
            return [self._call(item, kind)]
        if kind.endswith("_output"):
            return [self._output(item)]
        if kind in _SUMMARIES:
            body = text_of(item.get("content") or item.get("summary"))
            return [_part("assistant", "summary", body, salt=_secret(item))]
        return [] if kind in _NOT_SENT else [_part("user", "other", dump(item))]

    def _call(self, item: JsonObject, kind: str) -> Part:
        call = get_text(item, "call_id", "id")
        name = get_text(item, "name") or kind.removesuffix("_call")
        if call:
            self.tools[call] = name
        given: Json = item.get("arguments", item.get("input", item.get("action")))
        body = given if isinstance(given, str) else dump(given)
        return _part("assistant", "tool_use", body, tool=name, call_id=call)

    def _output(self, item: JsonObject) -> Part:
        call = get_text(item, "call_id")
        body = text_of(item.get("output", item.get("tools")))
        return _part("tool", "tool_result", body, tool=self.tools.get(call or ""), call_id=call)


def as_summary(parts: list[Part]) -> list[Part]:
    """Text that stands for a history, marked as what it is."""
    return [replace(part, kind="summary") if part.kind == "text" else part for part in parts]


def _secret(item: JsonObject) -> str:
    return get_text(item, "encrypted_content") or ""


def _part(
    role: str,
    kind: Kind,
    body: str,
    *,
    tool: str | None = None,
    call_id: str | None = None,
    salt: str = "",
) -> Part:
    return make_part(
        "messages", role, kind, body, tool=tool, call_id=call_id, starts_message=True, salt=salt
    )

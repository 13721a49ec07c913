"""Where a request's system prompt and tool definitions are, sender by sender and server by server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analyzer.errors import DecodeError
from analyzer.sources.blocks import Marked, mark_of, system_parts, tool_parts
from analyzer.sources.decode import Json, JsonObject, get_array, get_object, parse
from analyzer.sources.spans.blocks import Calls, blocks, decoded


def first_set(obj: JsonObject, *keys: str) -> Json:
    """The first of some keys that holds something."""
    return next((obj[key] for key in keys if obj.get(key)), None)


def read_system(system: Json) -> list[Marked]:
    """A system prompt in any dialect; Gemini's is an object with parts."""
    if isinstance(system, Mapping) and "text" not in system:
        system = get_array(system, "parts") or get_array(system, "content") or [system]
    if isinstance(system, Sequence) and not isinstance(system, str):
        return system_parts(list(blocks(system, Calls())))
    return system_parts(system)


def read_tools(
    given: Json, definitions: Sequence[Json], metadata: JsonObject, column: Json
) -> list[Marked]:
    """Tool definitions from wherever this sender and this server put them."""
    listed = _listed(given) or [m["content"] for m in definitions if isinstance(m, Mapping)]
    if not listed:
        listed = next((found for found in map(_listed, _hidden_tools(metadata)) if found), [])
    if not listed and isinstance(column, Mapping):
        listed = [{"name": name, "definition": text} for name, text in column.items()]
    out: list[Marked] = []
    for tool in listed:
        if isinstance(tool, Mapping) and "cachePoint" in tool:
            if out:
                asked = {"cache_control": get_object(tool, "cachePoint")}
                out[-1] = Marked(out[-1].part, mark_of(asked))
            continue
        out.extend(tool_parts([tool]))
    return out


def _listed(given: Json) -> list[Json]:
    given, _ = decoded(given)
    if isinstance(given, Mapping):
        given = given.get("tools") or [given]
    if not isinstance(given, Sequence) or isinstance(given, str):
        return []
    out: list[Json] = []
    for entry in given:
        tool, _ = decoded(entry)
        if not isinstance(tool, Mapping):
            out.append(tool)
            continue
        declared = get_array(tool, "function_declarations") or get_array(
            tool, "functionDeclarations"
        )
        spec = tool.get("toolSpec")
        if declared:
            out.extend(declared)
        else:
            out.append(spec if isinstance(spec, Mapping) else tool)
    return out


def _hidden_tools(metadata: JsonObject) -> Iterable[Json]:
    """Where servers before May 2026 left tool definitions."""
    attributes = _object(metadata.get("attributes"))
    for holder in (metadata, attributes):
        yield holder.get("tools")
        for key in ("ai.prompt.tools", "gen_ai.tool.definitions", "attributes.ai.prompt.tools"):
            yield holder.get(key)
        parameters = holder.get("model_request_parameters")
        yield _object(parameters).get("function_tools")
    schemas = (attributes.get(f"llm.tools.{n}.tool.json_schema") for n in range(512))
    yield [decoded(s)[0] for s in schemas if s is not None] or None


def _object(value: Json) -> JsonObject:
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = parse(value.encode("utf-8", "surrogatepass"))
        except DecodeError:
            return {}
    return value if isinstance(value, Mapping) else {}

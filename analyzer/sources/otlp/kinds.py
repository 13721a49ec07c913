"""What a span is: a request to a model, an agent, a tool, or something around them.

Sources, all read 2026-11: opentelemetry.io/docs/specs/semconv/gen-ai, the OpenInference
specification (github.com/Arize-ai/openinference/spec), ai-sdk.dev/docs/ai-sdk-core/telemetry,
github.com/traceloop/openllmetry, code.claude.com/docs/en/monitoring-usage.
"""

from __future__ import annotations

from analyzer.sources.otlp.values import Attributes, text_at
from analyzer.sources.spans.rows import TYPES

_OPERATIONS = {
    "chat": "GENERATION",
    "completion": "GENERATION",
    "text_completion": "GENERATION",
    "generate_content": "GENERATION",
    "responses": "GENERATION",
    "embedding": "EMBEDDING",
    "embeddings": "EMBEDDING",
    "execute_tool": "TOOL",
    "invoke_agent": "AGENT",
    "create_agent": "AGENT",
    "agent_step": "AGENT",
    "invoke_workflow": "CHAIN",
    "retrieval": "RETRIEVER",
}
_OPENINFERENCE = {
    "LLM": "GENERATION",
    "EMBEDDING": "EMBEDDING",
    "AGENT": "AGENT",
    "CHAIN": "CHAIN",
    "TOOL": "TOOL",
    "RETRIEVER": "RETRIEVER",
    "GUARDRAIL": "GUARDRAIL",
    "EVALUATOR": "EVALUATOR",
    "RERANKER": "SPAN",
    "PROMPT": "SPAN",
}
_TRACELOOP = {"workflow": "CHAIN", "task": "SPAN", "agent": "AGENT", "tool": "TOOL"}
_REQUESTS = {"chat": "GENERATION", "completion": "GENERATION", "embedding": "EMBEDDING"}
_CLAUDE_CODE = {"llm_request": "GENERATION", "tool": "TOOL", "interaction": "CHAIN"}
_MODELS = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "ai.model.id")
_AGENTS = ("agent_name", "gen_ai.agent.name", "gen_ai.agent.id")


def kind_of_span(given: Attributes, *, spends: bool) -> str:
    """The type of a span in the words of `rows.TYPES`.

    `spends` says that it has token counts, which tells a model call where no convention names it.
    """
    if given.get("logfire.span_type") == "pending_span":
        return "SPAN"  # a note that a span has begun, sent as a span of its own
    stated = (text_at(given, "langfuse.observation.type") or "").upper()
    if stated in TYPES:
        return stated
    named = (
        _OPENINFERENCE.get((text_at(given, "openinference.span.kind") or "").upper())
        or _ai_sdk(text_at(given, "ai.operationId") or "")
        or _OPERATIONS.get((text_at(given, "gen_ai.operation.name") or "").lower())
        or _REQUESTS.get((text_at(given, "llm.request.type") or "").lower())
        or _CLAUDE_CODE.get(text_at(given, "span.type") or "")
        or _TRACELOOP.get((text_at(given, "traceloop.span.kind") or "").lower())
    )
    if named:
        return named
    if "gen_ai.tool.name" in given:
        return "TOOL"
    if text_at(given, *_AGENTS):
        return "AGENT"
    if "gcp.vertex.agent.llm_request" in given or (spends and text_at(given, *_MODELS)):
        return "GENERATION"
    return "SPAN"


def _ai_sdk(operation: str) -> str | None:
    """The AI SDK sums up its requests (`….doGenerate`, `….doStream`) in a span around them."""
    if not operation.startswith("ai."):
        return None
    if operation.endswith((".doGenerate", ".doStream")):
        return "GENERATION"
    if operation.endswith(".doEmbed"):
        return "EMBEDDING"
    if operation == "ai.toolCall":
        return "TOOL"
    return "CHAIN"

"""Foreign files become steps; one module a format.

To add a source: write a class with `name`, `title`, `detect` and `read` (see `base.Source`), and
name it below; `base.JointSource` is for files that have to be read together. Outside packages use
the entry point group `analyzer.sources`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from analyzer.errors import UsageError
from analyzer.sources.anthropic_log import AnthropicLogSource
from analyzer.sources.atif import AtifSource
from analyzer.sources.base import Head, Source
from analyzer.sources.claude_code import ClaudeCodeSource
from analyzer.sources.cline import ClineSource
from analyzer.sources.codex import CodexSource
from analyzer.sources.copilot_cli import CopilotCliSource
from analyzer.sources.gemini_cli import GeminiCliSource
from analyzer.sources.inspect_eval import InspectSource
from analyzer.sources.langfuse import LangfuseSource
from analyzer.sources.langsmith import LangSmithSource
from analyzer.sources.managed_agents import ManagedAgentsSource
from analyzer.sources.mini_swe_agent import MiniSweAgentSource
from analyzer.sources.openai_log import OpenAILogSource
from analyzer.sources.openclaw_telemetry import OpenClawTelemetrySource
from analyzer.sources.opencode import OpenCodeSource
from analyzer.sources.openhands import OpenHandsSource
from analyzer.sources.otlp import OtlpSource
from analyzer.sources.pi import PiSource
from analyzer.sources.steps import StepsSource
from analyzer.sources.swe_agent import SweAgentSource
from analyzer.sources.tau_bench import TauBenchSource
from analyzer.sources.vcr import VcrSource

_OWN: tuple[Source, ...] = (
    StepsSource(),
    ClaudeCodeSource(),
    CodexSource(),
    OpenCodeSource(),
    PiSource(),
    OpenClawTelemetrySource(),
    GeminiCliSource(),
    ClineSource(),
    CopilotCliSource(),
    MiniSweAgentSource(),
    SweAgentSource(),
    AtifSource(),
    OpenHandsSource(),
    TauBenchSource(),
    InspectSource(),
    VcrSource(),
    ManagedAgentsSource(),
    LangSmithSource(),
    LangfuseSource(),
    OtlpSource(),
    OpenAILogSource(),
    AnthropicLogSource(),
)

__all__ = ["SOURCES", "Head", "Source", "detect", "load_plugins", "named"]

SOURCES: dict[str, Source] = {source.name: source for source in _OWN}


def load_plugins() -> None:
    """Add the sources of installed packages (entry point group `analyzer.sources`)."""
    for entry in entry_points(group="analyzer.sources"):
        source: Source = entry.load()()
        SOURCES.setdefault(source.name, source)


def detect(head: Head) -> Source | None:
    """The first source that recognises a file; None if none does."""
    return next((source for source in SOURCES.values() if source.detect(head)), None)


def named(name: str) -> Source:
    """A source by its name. Raises `UsageError`."""
    if name not in SOURCES:
        raise UsageError.unknown("source", name, SOURCES)
    return SOURCES[name]

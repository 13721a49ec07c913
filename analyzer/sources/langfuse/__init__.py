"""Saved Langfuse data: API pages, downloads and exports.

Read in this order: `files` and `tables` (what lies in a file) → `rows` (observations, traces and
scores as typed rows) → `source`; `analyzer.sources.spans` makes steps of the rows.
"""

from analyzer.sources.langfuse.source import LangfuseSource

__all__ = ["LangfuseSource"]

"""Saved Langfuse data: API pages, downloads and exports.

Read in this order: `files` and `tables` (what lies in a file) → `rows` (one typed row whatever the
form) → `usage` and `keys` (disjoint counts) → `shapes`, `messages`, `blocks`, `tools` (what was
sent) → `tree`, `lanes`, `steps` (who called whom) → `source`.
"""

from analyzer.sources.langfuse.source import LangfuseSource

__all__ = ["LangfuseSource"]

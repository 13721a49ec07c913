"""OpenTelemetry spans of model calls, as collectors and SDKs write them into files.

Read in this order: `values` (what the protocol writes around a value) → `span` (one span, whichever
tool dumped it) → `files` (where spans lie in a file) → `kinds`, `usage`, `content` (one convention
beside another) → `rows`, `owners`, `joining` → `source`; `analyzer.sources.spans` makes steps of the rows.
"""

from analyzer.sources.otlp.source import OtlpSource

__all__ = ["OtlpSource"]

"""The dashboard: pages that only describe what is shown; all logic is in `analyzer.views`."""

"""Formats what the core found: tables, texts, charts. Decides nothing."""

"""Paths in, a published store out: walk, recognise, read in worker processes, write; once or on and on.

Owns what makes a repeated run harmless: a file is its bytes, so the same bytes are skipped under
any name, a file that grew replaces what was read of it before, and a rotated one is new.
"""

from analyzer.intake.following import follow
from analyzer.intake.once import ingest
from analyzer.intake.sink import IngestReport, Progress

__all__ = ["IngestReport", "Progress", "follow", "ingest"]

"""Every exception that the package raises on purpose.

AnalyzerError
├── InputError          something handed in by a person cannot be used
│   ├── UsageError      an option, a policy spec or a name that does not exist (exit code 2)
│   └── DecodeError     one record of a file cannot be read; carries a pointer
├── StoreError          the store cannot be opened, is newer than this version, or is busy
├── ReaderLostError     a reading process ended before its answer did
├── PriceError          a price file is malformed
├── LawError            a conservation law of a replay or a ledger does not hold (a defect of ours)
└── GateError          a gate (`--fail-on`, `--max-waste`) failed (exit code 3)

Each message says what was expected, what came, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable


class AnalyzerError(Exception):
    """Base of all errors that `cli` turns into one line and an exit code."""


class InputError(AnalyzerError):
    """Something handed in by a person cannot be used."""


class UsageError(InputError):
    """An option, spec or name that does not exist; the message lists those that do."""

    @classmethod
    def unknown(cls, what: str, got: str, known: Iterable[str]) -> UsageError:
        """Build the usual message: what was asked for, and what there is."""
        return cls(f"there is no {what} {got!r}; known: {', '.join(sorted(known))}")


class DecodeError(InputError):
    """One record cannot be read.

    `pointer` is the place inside the record, such as `$.message.usage.input_tokens`.
    """

    def __init__(self, message: str, pointer: str = "$") -> None:
        super().__init__(f"{message} - at `{pointer}`")
        self.message = message
        self.pointer = pointer


class StoreError(AnalyzerError):
    """The store cannot be opened, is newer than this version, or is busy."""


class ReaderLostError(AnalyzerError):
    """A reading process ended before its answer did; the file is left out with a problem."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the reading process ended with code {exit_code}")
        self.exit_code = exit_code


class PriceError(AnalyzerError):
    """A price file is malformed."""


class LawError(AnalyzerError):
    """A conservation law does not hold: a defect of this program, never of the input."""


class GateError(AnalyzerError):
    """A gate that the user asked for failed; `cli` exits with 3."""

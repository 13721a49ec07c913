"""The table of formats: what the sources count beside an independent recount of the same files.

`python -m tests.recount ../shared/data/traces`; the exit code is 1 where the two differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.recount.compare import compared, table


def main(folder: Path) -> int:
    results = list(compared(folder))
    print(table(results))
    wrong = [result for result in results if result.difference]
    for result in wrong:
        print(f"{result.path}: {result.difference}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

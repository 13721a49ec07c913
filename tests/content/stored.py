"""Everything that a store file holds, as bytes to search: rows, opened packs, and the raw file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb
import zstandard


def stored(path: Path) -> bytes:
    """All values of all tables, the content of all packs, and the file (with free blocks) itself."""
    found = [path.read_bytes()]
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{path}' AS s (READ_ONLY)")
        connection.execute("USE s")
        names = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 's'"
        ).fetchall()
        for (name,) in names:
            for row in connection.execute(f"SELECT * FROM {name}").fetchall():
                found += [_bytes(value) for value in row]
    return b"\n".join(found)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode("utf-8", "surrogatepass")
    if value.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().decompress(value)
    return value


def frames(path: Path) -> bytes:
    """Every compressed frame of a file, opened, whether a row still names it or not."""
    raw, out, at = path.read_bytes(), [], 0
    while (at := raw.find(b"\x28\xb5\x2f\xfd", at)) >= 0:
        with suppress(zstandard.ZstdError):
            out.append(zstandard.ZstdDecompressor().decompressobj().decompress(raw[at:]))
        at += 4
    return b"\n".join(out)

"""What a store keeps of the content: remembered by the store, changed only where asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from analyzer.content import MODES, Mode, keeps_more
from analyzer.content.standins import KEY_BYTES
from analyzer.store import Scope, Store

MODE_NOTE = "content"
KEY_NOTE = "content_key"


@dataclass(frozen=True, slots=True)
class Retention:
    """The mode of one ingest, and the key of its store."""

    mode: Mode
    key: bytes
    """Random and of this store alone, so that a stand-in means nothing elsewhere."""

    @classmethod
    def choose(cls, store: Store, asked: Mode | None) -> Self:
        """What is asked for, else what the store kept last; the store's key, else a new one.

        A store that holds something remembers what is asked for, even if nothing new is read.
        """
        noted = store.noted(MODE_NOTE)
        last = next((mode for mode in MODES if mode == noted), MODES[0])
        key = store.noted(KEY_NOTE)
        kept = cls(asked or last, bytes.fromhex(key) if key else os.urandom(KEY_BYTES))
        if asked is not None and not store.is_empty():
            kept.note(store)
        return kept

    def note(self, store: Store) -> None:
        """Have the store remember both; without stand-ins there is no use for a key."""
        key = {} if self.mode == "full" else {KEY_NOTE: self.key.hex()}
        store.note({MODE_NOTE: self.mode, **key})

    def holding_more(self, store: Store) -> int:
        """Files of the whole store that hold more content than this mode keeps."""
        if store.is_empty():
            return 0
        files = store.query("files", Scope.everything())
        return sum(
            own == owner and keeps_more(content, self.mode)
            for own, owner, content in files.select("file_id", "owner", "content").iter_rows()
        )

"""Write step JSONL: one line after each model call. Standard library only; copy it as it is.

    log = StepLog("agent.steps.jsonl")
    log.emit("s-1", request, response, began)

A line is one write at the end of the file, so threads and processes may share it. A lane is written
by one process: its lines say what changed since the line before. Nothing here raises into the
agent; what could not be written is logged, and the next line of its lane is whole again.
"""
# ruff: noqa: UP017

import hashlib
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Mapping
from datetime import date, datetime, timezone

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_SURROGATES = re.compile("[\ud800-\udfff]")


class StepLog:
    """One file of steps. `deltas=False` writes every prompt whole; `sync=True` survives power cuts.

    A lane that was not heard of for `most_lanes` others begins whole again.
    """

    def __init__(self, path, *, deltas=True, sync=False, most_lanes=1000):
        self.path, self.deltas, self.sync, self.most_lanes = path, deltas, sync, most_lanes
        self._lanes = {}  # (session, lane) -> what stands around the messages, and their digests
        self._lock = threading.Lock()

    def emit(self, session, request, response, began, *, lane="main", parent=None, **more):
        """Log one call. Returns whether it was written.

        `request` and `response` are the bodies (or SDK objects); `began` is `time.time()` when the
        call started. `more`: `compaction`, `labels`, `error`, `ended_at` and the other fields of a
        line. Give each sub-agent its own `lane`, and the lane that started it as `parent`.
        """
        try:
            request, response = _plain(request), _plain(response)
            answer = response if isinstance(response, dict) else {}
            step = {"v": 1, "session": session, "lane": lane, "parent": parent}
            at, own = _instant(began), answer.get("id")
            # Gateways reuse ids; with the time, an id is unique in its lane.
            step |= {"id": f"{own}@{at}" if own else None, "at": at}
            step |= {"ended_at": _instant(time.time()), "model": request.get("model")}
            rest = {"response": response, "usage": answer.get("usage"), **_plain(more)}
            step |= {name: rest.pop(name) for name in list(rest) if name in step}
            with self._lock:
                return self._write_step((session, lane), step, request, rest)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            logging.getLogger(__name__).exception("a step of session %r was not logged", session)
            return False

    def describe(self, session, title=None, **attributes):
        """Give a session a title, and labels for all its later steps."""
        line = {"v": 1, "type": "session", "session": session, "title": title}
        with self._lock:
            return self._append(_json({**line, "attributes": _plain(attributes)}))

    def _write_step(self, lane, step, request, rest):
        name = "messages" if "messages" in request else "input"
        entries = request[name] if isinstance(request[name], list) else []
        messages = [_json(message) for message in entries]
        head = _json({key: value for key, value in request.items() if key != name})
        digests = [hashlib.blake2b(m.encode(), digest_size=16).digest() for m in messages]
        known = self._lanes.pop(lane, None)
        whole = '{"request":' + _json(request) + "}"
        prompt = whole
        if entries and known is not None and known[0] == head:
            delta = _delta(known[1], digests, messages)
            prompt = delta if len(delta) < len(whole) else whole
        line = _json(step)[:-1] + "," + prompt[1:-1] + "," + _json(rest)[1:]
        written = self._append(line)
        if written and self.deltas and entries:
            self._lanes[lane] = (head, digests)
            if len(self._lanes) > self.most_lanes:
                del self._lanes[next(iter(self._lanes))]
        return written

    def _append(self, line):
        data = line.encode() + b"\n"
        try:
            file = os.open(self.path, _FLAGS, 0o600)
            try:
                size = os.fstat(file).st_size
                os.lseek(file, max(0, size - 1), os.SEEK_SET)
                # A process that died while it wrote leaves half a line; do not add to that one.
                if size and os.read(file, 1) != b"\n":
                    data = b"\n" + data
                while data:
                    data = data[os.write(file, data) :]
                if self.sync:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError:
            logging.getLogger(__name__).exception("nothing was logged to %s", self.path)
            return False
        return True


def emit_step(path, session, request, response, began, **more):
    """Log one call with its whole prompt; see `StepLog.emit`."""
    return StepLog(path, deltas=False).emit(session, request, response, began, **more)


def _delta(old, new, messages):
    """What turns the messages with the digests `old` into those with the digests `new`."""
    places = {}
    for index, digest in enumerate(old):
        places.setdefault(digest, []).append(index)
    replace, drop, i, j = [], [], 0, 0
    while i < len(old) and j < len(new):
        if old[i] != new[j]:
            later = next((place for place in places.get(new[j], ()) if place > i), None)
            if later is None:
                replace.append('{"index":' + str(i) + ',"message":' + messages[j] + "}")
            else:
                drop.append([i, later])
                i = later
        i, j = i + 1, j + 1
    if i < len(old):
        drop.append([i, len(old)])
    edits = [f'"append":[{",".join(messages[j:])}]']
    edits += [f'"replace":[{",".join(replace)}]'] if replace else []
    edits += [f'"drop":{_json(drop)}'] if drop else []
    return "{" + ",".join(edits) + "}"


def _json(value):
    """Compact JSON; half of a surrogate pair is no text, and only gets through as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _plain(value):
    """A value as JSON can hold it: SDK objects as their fields, times as ISO 8601, NaN as null."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    for name in ("model_dump", "dict"):
        if callable(getattr(value, name, None)):
            return _plain(getattr(value, name)(exclude_none=True))
    return _plain(vars(value)) if hasattr(value, "__dict__") else str(value)


def _instant(seconds):
    if isinstance(seconds, datetime):
        return seconds.isoformat()
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

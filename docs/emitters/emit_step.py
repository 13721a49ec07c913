"""Write one line of step JSONL after each model call. Standard library only; copy it as it is."""
# ruff: noqa: UP017

import json
from datetime import datetime, timezone


def emit_step(path, session, request, response, began, **more):
    """`request` and `response`: the JSON bodies; `began`: `time.time()` when the call started."""
    at = datetime.fromtimestamp(began, timezone.utc).isoformat()
    ended_at = datetime.now(timezone.utc).isoformat()
    step = {"v": 1, "session": session, "id": response.get("id"), "at": at, "ended_at": ended_at}
    step |= {"model": request.get("model"), "request": request, "response": response}
    step |= {"usage": response.get("usage"), **more}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(step, separators=(",", ":")) + "\n")

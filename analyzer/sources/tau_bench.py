"""Results of tau-bench: an array of runs, each with its conversation in OpenAI's chat form.

Neither usage nor times nor the tools' definitions are recorded. The user is played by a model whose
own requests are not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from analyzer.errors import DecodeError
from analyzer.model import LaneSteps, Problem, SessionKey
from analyzer.sources.base import Context, Head
from analyzer.sources.decode import JsonObject, as_array, as_object, dump
from analyzer.sources.documents import outline, problem, read_document, run_name, stem_of
from analyzer.sources.history import Call, HistoryLane

_RUN = ("[].task_id", "[].reward", "[].info")


class TauBenchSource:
    """Reads one result file."""

    name: ClassVar[str] = "tau-bench"
    title: ClassVar[str] = "tau-bench results, an array of runs without usage"

    def detect(self, head: Head) -> bool:
        """An array of objects with a task, a reward and either its conversation or its actions."""
        if head.data.lstrip()[:1] != b"[":
            return False
        keys = outline(head.data)
        return all(key in keys for key in _RUN) and "[].traj" in keys

    def read(self, path: Path, context: Context) -> Iterator[LaneSteps | Problem]:
        """See `Source.read`."""
        document, failed = read_document(path)
        if failed is not None:
            yield failed
            return
        try:
            runs = as_array(document)
        except DecodeError as error:
            yield problem(path, None, error)
            return
        for index, run in enumerate(runs):
            try:
                yield from _run(as_object(run, f"$[{index}]"), index, path, context)
            except DecodeError as error:
                yield problem(path, index + 1, error, run)


def _run(
    run: JsonObject, index: int, path: Path, context: Context
) -> Iterator[LaneSteps | Problem]:
    messages = as_array(run.get("traj"), f"$[{index}].traj")
    task, trial = dump(run.get("task_id")), dump(run.get("trial"))
    session = run_name(f"{stem_of(path)}/task-{task}/trial-{trial}", *messages)
    lane = HistoryLane(SessionKey(context.project, context.user, session))
    lane.recorded = False
    labels = (("reward", dump(run.get("reward"))), ("task", task), ("trial", trial))
    for number, entry in enumerate(messages):
        pointer = f"$[{index}].traj[{number}]"
        try:
            message = as_object(entry, pointer)
            if message.get("role") != "assistant":
                lane.say(message)
                continue
            call = Call(key=f"{session}#{number}", line=index + 1, labels=labels)
            lane.step(call, message)
        except DecodeError as error:
            yield problem(path, index + 1, DecodeError(error.message, pointer), entry)
    if len(lane):
        yield lane.take()

"""The sample traces: made by their scripts, true to their content, and as their README says."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from analyzer.model import Part
from analyzer.sources.claude_code import ClaudeCodeSource
from analyzer.sources.steps import validate_file
from analyzer.tokens import appended_ranges
from tests.reading import batches
from tests.step_rows import Read, oracle

SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces"
STEPS = SAMPLES / "steps"
BLOWUP = STEPS / "blowup-177.jsonl.gz"
SMALL = ("healthy", "timestamp-in-system", "tools-changed", "batch-clear")
PUBLISHED = {
    5: (188, 75, 165, 175_958, 295),
    6: (190, 75, 165, 176_253, 232),
    7: (192, 76, 167, 102_795, 74_555),
    8: (194, 77, 169, 102_795, 77_238),
    9: (196, 78, 171, 102_795, 77_634),
    58: (294, 101, 273, 102_795, 117_088),
}
"""Step: messages, stubs, last stub index, cache read, cache write; the article's section 3.x."""


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts that make the files."""
    folder = str(SAMPLES / "make")
    sys.path.insert(0, folder)
    names = ("trace_text", "trace_cache", "trace_session", "blowup_177", "small_sessions")
    yield {name: import_module(name) for name in names}
    sys.path.remove(folder)
    for name in names:
        del sys.modules[name]


@pytest.fixture(scope="module")
def blowup() -> Read:
    return Read(BLOWUP)


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@pytest.mark.parametrize("path", sorted(STEPS.iterdir()), ids=lambda path: path.name)
def test_every_sample_is_valid_and_read_without_a_problem(path: Path) -> None:
    assert validate_file(path) == []
    read = Read(path)
    assert read.problems == []
    assert len(read.steps) == len(plain(path).splitlines())


def test_the_scripts_give_the_committed_files_byte_for_byte(
    scripts: dict[str, ModuleType],
) -> None:
    # What is compared is unpacked: another zlib may pack the same bytes in another way.
    assert scripts["blowup_177"].build() == plain(BLOWUP)
    for name in SMALL:
        assert scripts["small_sessions"].build(name) == plain(STEPS / f"{name}.jsonl")


def test_packing_leaves_no_time_and_no_name_in_the_archive() -> None:
    head = BLOWUP.read_bytes()[:10]
    assert head[3] == 0
    assert head[4:8] == bytes(4)


def stubs(read: Read, number: int) -> list[int]:
    """Message index of each placeholder of a step's prompt."""
    prompt = read.steps[number].prompt
    assert prompt is not None
    pool = read.pools[read.lane_of[number]]
    message, found = -1, []
    for part in (pool[i] for i in prompt.indices()):
        message += part.starts_message
        if part.placeholder:
            found.append(message)
    return found


@pytest.mark.parametrize("number", sorted(PUBLISHED))
def test_the_published_rows_come_out_of_the_recording(blowup: Read, number: int) -> None:
    step = blowup.steps[number]
    assert step.prompt is not None
    assert step.usage is not None
    pool = blowup.pools[blowup.lane_of[number]]
    messages = sum(pool[i].starts_message for i in step.prompt.indices())
    found = stubs(blowup, number)
    got = (messages, len(found), max(found), step.usage.cache_read, step.usage.cache_write)
    assert got == PUBLISHED[number]


def test_the_prompts_rebuilt_from_deltas_are_those_of_the_lines(
    blowup: Read, scripts: dict[str, ModuleType]
) -> None:
    lines = [json.loads(line) for line in plain(BLOWUP).splitlines()]
    sent = scripts["trace_session"].prompts(lines)
    request = lines[0]["request"]
    for number in (0, 1, 7, 57, 59, 60, 110, 176):
        assert blowup.digests(number) == oracle({**request, "messages": sent[number]})


def test_the_bill_and_the_length_are_those_of_the_article(blowup: Read) -> None:
    write = read = other = 0.0
    for step in blowup.steps:
        usage = step.usage
        assert usage is not None
        write += (usage.cache_write or 0) * 3.75e-6
        read += (usage.cache_read or 0) * 0.30e-6
        other += (usage.input or 0) * 3e-6 + (usage.output or 0) * 15e-6
    total = write + read + other
    assert total == pytest.approx(77.3, rel=0.005)
    assert write == pytest.approx(64.8, rel=0.005)
    assert 100 * write / total == pytest.approx(83.4, abs=1)
    assert len(blowup.steps) == 177
    assert sum(step.human for step in blowup.steps) == 4
    ended, began = blowup.steps[-1].ended_at, blowup.steps[0].at
    assert ended is not None
    assert began is not None
    assert round((ended - began).total_seconds() / 60) == 59


def test_the_first_turn_breaks_at_every_step_from_the_seventh_on(blowup: Read) -> None:
    usages = [step.usage for step in blowup.steps[:60] if step.usage is not None]
    assert {usage.cache_read for usage in usages[7:]} == {102_795}
    for before, now in pairwise(usages[:7]):
        assert now.cache_read == (before.cache_read or 0) + (before.cache_write or 0)


def first_difference(before: list[Part], now: list[Part]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), None)


def test_each_break_of_the_blow_up_shows_as_an_edit_of_an_old_part(blowup: Read) -> None:
    pool = blowup.pools["blowup-177", "main"]
    prompts = [
        [pool[i] for i in step.prompt.indices()] for step in blowup.steps if step.prompt is not None
    ]
    edited = [first_difference(a, b) is not None for a, b in pairwise(prompts)]
    broken = []
    for before, now in pairwise(step.usage for step in blowup.steps):
        assert before is not None
        assert now is not None
        broken.append((now.cache_read or 0) < (before.cache_read or 0) + (before.cache_write or 0))
    assert edited == broken
    assert sum(broken) == 164


def test_the_cache_of_the_scripts_follows_the_documented_example(
    scripts: dict[str, ModuleType],
) -> None:
    module = scripts["trace_cache"]
    blocks = [module.Block("user", {"type": "text", "text": str(n)}, 500) for n in range(35)]

    def serve(cache: object, count: int, marks: list[int]) -> tuple[int, int]:
        digests = [block.digest(True) for block in blocks[:count]]
        usage = cache.serve(0.0, digests, blocks[:count], marks)  # type: ignore[attr-defined]
        return usage.read // 500, usage.write // 500

    # The provider's own: 10 blocks, then 15, then 35; 20 positions are looked at, the mark included.
    for second, expected in (([35], (0, 35)), ([15, 35], (15, 20)), ([34], (15, 19))):
        cache = module.PromptCache()
        assert serve(cache, 10, [10]) == (0, 10)
        assert serve(cache, 15, [15]) == (10, 5)
        assert serve(cache, 35, second) == expected


def test_the_healthy_session_reads_what_it_wrote_and_only_appends() -> None:
    read = Read(STEPS / "healthy.jsonl")
    for before, now in pairwise(read.steps):
        assert before.usage is not None
        assert now.usage is not None
        assert before.prompt is not None
        assert now.prompt is not None
        written = (before.usage.cache_read or 0) + (before.usage.cache_write or 0)
        assert now.usage.cache_read == written
        assert appended_ranges(before.prompt, now.prompt)


def reads(name: str) -> list[int | None]:
    usages = [step.usage for step in Read(STEPS / f"{name}.jsonl").steps]
    return [usage.cache_read if usage else None for usage in usages]


def drops(name: str) -> list[int]:
    """Steps that read less than the step before, from 1."""
    found = reads(name)
    return [n for n in range(2, len(found) + 1) if (found[n - 1] or 0) < (found[n - 2] or 0)]


def test_the_other_sessions_break_where_their_readme_says() -> None:
    assert set(reads("timestamp-in-system")) == {0}
    assert drops("tools-changed") == [12, 21]
    assert drops("batch-clear") == [24]


def test_the_batch_clear_records_its_compaction() -> None:
    read = Read(STEPS / "batch-clear.jsonl")
    events = {n: step.compaction for n, step in enumerate(read.steps, 1) if step.compaction}
    assert list(events) == [24]
    event = events[24]
    assert (event.kind, event.tier, event.summary_called) == ("clear", "2", False)
    assert event.pruned == len(stubs(read, 23))
    usage = read.steps[23].usage
    assert usage is not None
    assert event.post_tokens == (usage.prompt or 0) - (usage.input or 0)


def test_the_real_sessions_are_read_and_their_licences_lie_beside_them() -> None:
    folder = SAMPLES / "claude-code"
    files = sorted(folder.rglob("*.jsonl.gz"))
    assert len(files) == 3
    steps: dict[str, dict[str, int]] = {}
    for path in files:
        assert (folder / "LICENSES" / f"{path.parent.name}.txt").read_text(encoding="utf-8")
        found, problems = batches(ClaudeCodeSource(), path)
        assert problems == []
        lanes = steps.setdefault(path.name[:8], {})
        for batch in found:
            lanes[batch.lane] = lanes.get(batch.lane, 0) + len(batch.steps)
    assert {name: sorted(lanes.values()) for name, lanes in steps.items()} == {
        "12f1f541": [6, 10, 82],
        "5da873e1": [9, 26],
        "b03b1822": [41],
    }


def test_all_samples_together_are_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 6_000_000


def test_the_readme_names_every_file() -> None:
    text = (SAMPLES / "README.md").read_text(encoding="utf-8")
    for path in (*STEPS.iterdir(), *(SAMPLES / "claude-code").rglob("*.gz")):
        name = path.name if path.parent == STEPS else f"{path.parent.name}/{path.name[:8]}"
        assert name in text

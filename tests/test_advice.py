"""Advice on marks over recordings whose best placement is known by how they were made."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from analyzer.advice import Advice, advise
from analyzer.caching import parse_placement
from analyzer.cli import main
from analyzer.comparison import compare_policies
from analyzer.diagnose import SessionDiagnosis, diagnose_session
from analyzer.errors import UsageError
from analyzer.model import Lane, Session
from analyzer.pricing import PriceBook
from analyzer.views.advice import advice_document, advice_table
from tests.builders import anthropic_records, write_lines
from tests.replay.recordings import (
    Message,
    Recorder,
    call,
    keep_newest,
    result,
    user,
    with_usage,
    words,
)

BOOK = PriceBook.default()
GPT = "gpt-5.4"


def _lane(
    gaps: list[float],
    *,
    keep: int | None = None,
    model: str | None = None,
    cache: str = "anthropic",
    marked: bool = True,
) -> Lane:
    """An agent that waits so long before each request; its usage is what the cache model gives."""
    r = random.Random(7)
    recorder = Recorder(system="You are an agent. " * 900, marked=marked)
    messages: list[Message] = [user("Fix it. " + words(r, 60))]
    for n, gap in enumerate(gaps):
        sent = keep_newest(keep)(messages, n) if keep is not None else messages
        extra = {"model": model} if model else {}
        recorder.send(sent, gap=gap, **extra)
        messages = [*messages, call(f"c{n}", "Look."), result(f"c{n}", words(r, 500))]
    return with_usage(recorder.lane(), cache)


def _diagnosis(lane: Lane) -> SessionDiagnosis:
    return diagnose_session(Session(lane.session, (lane,)), BOOK)


def _advice(lane: Lane, cache: str | None = None) -> Advice:
    (advice,), left_out = advise([_diagnosis(lane)], BOOK, cache=cache)
    assert left_out == ()
    return advice


def _costs(advice: Advice) -> dict[str | None, float]:
    return {o.placement: o.result.cost_usd or 0.0 for o in advice.options}


def test_pauses_longer_than_five_minutes_want_marks_of_an_hour() -> None:
    advice = _advice(_lane([900.0] * 14))
    best = advice.best
    assert best is not None
    assert best.placement is not None
    assert best.placement.endswith(":ttl=1h")
    assert "1h mark" in best.words
    assert best.saving is not None
    assert best.saving.share > 0.5
    assert [o.result.cost_usd for o in advice.options] == sorted(_costs(advice).values())


@pytest.mark.parametrize(("gap", "ttl"), [(298.0, "5m"), (302.0, "1h")])
def test_the_best_lifetime_turns_where_the_pauses_pass_five_minutes(gap: float, ttl: str) -> None:
    costs = _costs(_advice(_lane([gap] * 12)))
    other = "1h" if ttl == "5m" else "5m"
    assert costs[f"system-end:ttl={ttl}"] < costs[f"system-end:ttl={other}"]


def test_a_short_tool_loop_with_five_minute_marks_has_nothing_to_gain() -> None:
    advice = _advice(_lane([12.0] * 14))
    assert advice.best is None
    assert all(o.same for o in advice.options if o.placement == "recorded:ttl=5m")
    assert _costs(advice)["none"] > 3 * (advice.recorded.cost_usd or 0)


def test_stubs_that_slide_lose_the_system_prompt_where_it_has_no_mark_of_its_own() -> None:
    """One old result changes a step, so only what was marked before it is ever read again."""
    costs = _costs(_advice(_lane([12.0] * 24, keep=3)))
    assert costs["end:ttl=5m"] > 1.5 * costs["system-end:ttl=5m"]
    assert costs["system-end:ttl=1h"] > costs["system-end:ttl=mixed"] >= costs["system-end:ttl=5m"]


def test_prompts_that_never_recur_are_cheapest_without_a_mark() -> None:
    lane = _lane([4000.0] * 8)
    best = _advice(lane).best
    assert best is not None
    assert best.placement == "none"
    assert best.saving is not None
    # Everything was written at 1.25 and would have been input at 1.
    assert best.saving.share == pytest.approx(0.2, abs=0.01)


def test_the_marks_of_the_recording_are_named() -> None:
    advice = _advice(_lane([12.0] * 5))
    assert advice.use.shapes == (("system 5m, end 5m", 5),)
    hidden = _advice(_lane([12.0] * 5, marked=False))
    assert hidden.use.unmarked == 5
    assert not any((o.placement or "").startswith("recorded") for o in hidden.options)


def test_an_automatic_cache_has_nothing_to_place_and_prices_what_it_can() -> None:
    lane = _lane([12.0, *[2000.0] * 10], model=GPT, cache="openai")
    advice = _advice(lane)
    assert advice.lifetimes is None
    (option,) = advice.options
    assert option.placement is None
    assert "prompt_cache_retention=24h" in option.words
    assert option.saving is not None
    assert option.saving.share > 0.3
    assert any("prompt_cache_key" in hint.text for hint in advice.hints)


def test_the_lifetimes_have_the_names_of_their_provider() -> None:
    advice = _advice(_lane([2000.0] * 8, model="gpt-5.6-sol", cache="openai-5.6"))
    placements = [o.placement for o in advice.options if o.placement]
    assert "system-end:ttl=12h" in placements
    assert not any("1h" in p or "5m" in p for p in placements)
    assert all(parse_placement(p) for p in placements)


def test_no_option_is_named_within_the_error_of_the_replay() -> None:
    """Usage says that a cache of five minutes was read after fifteen: the model is far off."""
    recorder = Recorder(system="You are an agent. " * 900)
    messages = [user("Fix it.")]
    for n in range(8):
        recorder.send(messages, gap=900, read=lambda total: int(total * 0.95))
        messages = [*messages, call(f"c{n}"), result(f"c{n}", "done " * 90)]
    advice = _advice(recorder.lane())
    assert advice.band is not None
    assert advice.band > 1
    assert advice.best is None
    (row, *_) = advice_document([advice])["advice"]
    assert row["verdict"].startswith("no difference shown")


def test_a_read_that_the_recording_shows_needs_a_mark_to_be_read_by() -> None:
    recorder = Recorder(system="You are an agent. " * 900)
    for n in range(4):
        recorder.send([user("Fix it."), user(f"Part {n}")], gap=900, read=lambda total: total - 40)
    reads = {o.placement: o.result.read_tokens for o in _advice(recorder.lane()).options}
    assert reads["none"] == 0
    assert reads["system-end:ttl=5m"] > 0


def test_a_placement_is_priced_alike_by_replay_and_by_advice() -> None:
    lane = _lane([900.0] * 6)
    costs = _costs(_advice(lane))
    for spec in ("system-end:ttl=1h", "none", "every:ttl=mixed"):
        compared = compare_policies([_diagnosis(lane)], ["recorded"], BOOK, placement=spec)
        assert compared.outcomes[0].result.cost_usd == pytest.approx(costs[spec])
        assert compared.placement == spec


def test_unknown_prices_give_no_claim() -> None:
    advice = _advice(_lane([12.0] * 4, model="claude-quartz-99"))
    assert advice.best is None
    assert all(o.saving is None for o in advice.options)
    document = advice_document([advice])
    assert json.loads(json.dumps(document))["advice"][0]["options"][0]["cost_usd"] is None


def test_a_cache_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="no cache 'anthropci'"):
        advise([_diagnosis(_lane([1.0]))], BOOK, cache="anthropci")


def test_the_command_prints_words_rows_and_json(tmp_path: Path, capsys) -> None:
    log = write_lines(tmp_path / "run.jsonl", anthropic_records(6))
    db = str(tmp_path / "s.duckdb")

    def run(*args: str) -> tuple[str, object]:
        code: object = 0
        try:
            main(["--db", db, *args])
        except SystemExit as done:
            code = done.code
        return capsys.readouterr().out, code

    run("ingest", str(log))
    text, code = run("advise", "--all")
    assert code == 0
    assert "marks recorded: system 5m, end 5m (6 steps)" in text
    found = json.loads(run("advise", "--all", "--format", "json")[0])
    (advice,) = found["advice"]
    assert advice["cache"] == "anthropic"
    assert {"placement", "cost_usd", "saving", "band", "words"} <= advice["options"][0].keys()
    assert run("advise", "none-such")[1] == 2
    rows = run("advise", "--all", "--format", "csv")[0].splitlines()
    assert len(rows) == len(advice["options"]) + 2


def test_the_table_begins_with_the_recorded_bill() -> None:
    advice = _advice(_lane([900.0] * 6))
    table = advice_table([advice])
    assert table.rows[0]["placement"] == "as recorded"
    assert table.rows[0]["cost_usd"] == advice.recorded.cost_usd
    assert "instead of" in table.title

"""The query files: each has a scope, each answers, and facts come back as they were put."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path

import polars as pl
import pytest

from analyzer.errors import StoreError, UsageError
from analyzer.intake import ingest
from analyzer.model import SessionKey
from analyzer.store import (
    SCOPED_TABLES,
    STEP_FACT_COLUMNS,
    FindingRow,
    Scope,
    SessionFacts,
    Store,
    query_names,
)
from analyzer.store.base import HERE
from tests.steplines import SOURCES, line, write

VALUES = {
    "session_id": "s0",
    "analysis_version": "1",
    "recs": [1],
    "rec": 1,
    "segment": 0,
    "packs": [0],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two projects with sessions s0..s2 each, of users ann and bob."""
    folder = tmp_path_factory.mktemp("store")
    for project in ("p", "q"):
        for user in ("ann", "bob"):
            rows = [
                line(f"s{i}", f"{user}{i}.{j}", j, title=f"of {user}")
                for i in range(3)
                for j in range(4)
            ]
            made = write(folder / f"{project}-{user}.txt", *rows)
            ingest([made], folder / "s.duckdb", sources=SOURCES, project=project, user=user)
    return folder / "s.duckdb"


def values(name: str) -> dict[str, object]:
    text = (HERE / "queries" / f"{name}.sql").read_text()
    return {k: v for k, v in VALUES.items() if re.search(rf"\${k}\b", text)}


def facts(steps: int, wasted: float) -> pl.DataFrame:
    rows = [
        [
            "main",
            i,
            100 * i,
            i,
            0,
            None,
            0.5,
            None,
            0.1,
            90,
            None,
            95,
            0,
            "healthy",
            False,
            wasted,
            i == 1,
        ]
        for i in range(steps)
    ]
    return pl.DataFrame(rows, schema=STEP_FACT_COLUMNS, orient="row")


FINDING = FindingRow(
    "sliding-stubs", "main", 1, 3, 3, 900, 2.5, True, False, '{"was": "a"}', "batch"
)


@pytest.mark.parametrize("name", query_names())
def test_every_query_that_names_rows_takes_a_scope(name: str, path: Path) -> None:
    text = (HERE / "queries" / f"{name}.sql").read_text()
    assert re.search(rf"\b({'|'.join(SCOPED_TABLES)})\b", text), "a query about nothing"
    assert "$project" in text
    assert "$user" in text
    with Store.open(path) as store, pytest.raises(UsageError, match=r"pass scope=Scope\(project"):
        store.query(name, **values(name))


@pytest.mark.parametrize("name", query_names())
def test_every_query_answers_and_shows_nothing_of_others(name: str, path: Path) -> None:
    with Store.open(path) as store:
        store.query(name, Scope("p", "ann"), **values(name))
        for nobody in (Scope("p", "eve"), Scope("r"), Scope("p' OR '1'='1"), Scope("", "")):
            assert store.query(name, nobody, **values(name)).is_empty()


def test_a_scope_narrows_to_a_project_and_to_a_user(path: Path) -> None:
    with Store.open(path) as store:
        assert store.sessions(Scope.everything()).height == 12
        assert set(store.sessions(Scope("p"))["project"]) == {"p"}
        assert store.sessions(Scope("p")).height == 6
        mine = store.sessions(Scope("p", "ann"))
        assert mine.select("project", "user_id").unique().rows() == [("p", "ann")]
        assert mine.height == 3
        assert store.sessions(Scope(None, "ann")).height == 6


def test_parameters_that_do_not_fit_are_named(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(UsageError, match="takes project, session_id, user; got project, user"):
            store.query("steps", Scope.everything())
        with pytest.raises(UsageError, match="no query 'nope'; known: causes"):
            store.query("nope")


def test_the_overview_adds_up_the_recorded_tokens(path: Path) -> None:
    with Store.open(path) as store:
        row = (
            store.sessions(Scope("p", "ann"))
            .filter(pl.col("session_id") == "s0")
            .row(0, named=True)
        )
        steps = store.query("steps", Scope("p", "ann"), session_id="s0")
    assert (row["n_steps"], row["n_lanes"], row["n_copies"], row["models"]) == (4, 1, 0, ["m"])
    assert (row["input"], row["cache_read"], row["cache_write"]) == (12, 1 + 2 + 3 + 4, None)
    assert row["hit_ratio"] == pytest.approx(10 / 22)
    assert (row["cost_usd"], row["wasted_usd"], row["top_cause"]) == (None, None, None)
    assert row["started_at"].tzinfo is not None
    assert row["started_at"].astimezone(UTC).isoformat() == "2026-11-01T00:00:00+00:00"
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert steps["prompt_tokens"].to_list() == [4, 5, 6, 7]
    assert steps["cost_usd"].to_list() == [None] * 4


def own(path: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "own.duckdb"
    copy.write_bytes(path.read_bytes())
    return copy


def test_facts_come_back_and_make_a_session_fresh(path: Path, tmp_path: Path) -> None:
    copy = own(path, tmp_path)
    key, scope = SessionKey("p", "ann", "s0"), Scope("p", "ann")
    with Store.open(copy, "write") as store:
        assert len(store.stale_sessions("1")) == 12
        assert len(store.stale_sessions("1", scope)) == 3
        store.put_facts(key, facts(4, 9.0), [FINDING], "1")
        store.put_facts(
            key, facts(4, 1.0), [FINDING, FINDING._replace(kind="other", wasted_usd=0.1)], "1"
        )
    with Store.open(copy) as store:
        assert key not in store.stale_sessions("1")
        assert key in store.stale_sessions("2")
        row = store.sessions(scope).filter(pl.col("session_id") == "s0").row(0, named=True)
        steps = store.query("steps", scope, session_id="s0")
        found = store.query("findings", scope, session_id="s0")
        causes = store.query("causes", Scope("p"))
        assert store.query("causes", Scope("q")).is_empty()
        day = store.query("daily", scope).row(0, named=True)
    assert (row["cost_usd"], row["wasted_usd"], row["avoidable_usd"]) == (2.0, 4.0, 3.0)
    assert (row["top_cause"], row["analysed"], row["peak_tokens"]) == ("sliding-stubs", True, 300)
    assert steps["verdict"].to_list() == ["healthy"] * 4
    assert steps["divergence_index"].to_list() == [None] * 4
    assert [FindingRow(*r[4:]) for r in found.rows()] == [
        FINDING,
        FINDING._replace(kind="other", wasted_usd=0.1),
    ]
    assert causes.select("kind", "n_findings", "wasted_usd").rows() == [
        ("sliding-stubs", 1, 2.5),
        ("other", 1, 0.1),
    ]
    assert (day["n_sessions"], day["n_steps"], day["cost_usd"]) == (3, 12, 2.0)


def test_only_what_an_ingest_changed_becomes_stale(path: Path, tmp_path: Path) -> None:
    copy = own(path, tmp_path)
    with Store.open(copy, "write") as store:
        keys = store.stale_sessions("1")
        store.put_all_facts((SessionFacts(k, facts(4, 1.0), [FINDING]) for k in keys), "1")
        assert store.stale_sessions("1") == []
    more = write(tmp_path / "more.txt", line("s1", "new", 50))
    ingest([more], copy, sources=SOURCES, project="p", user="ann")
    with Store.open(copy) as store:
        assert store.stale_sessions("1") == [SessionKey("p", "ann", "s1")]


def test_facts_with_missing_columns_are_refused(path: Path, tmp_path: Path) -> None:
    with (
        Store.open(own(path, tmp_path), "write") as store,
        pytest.raises(StoreError, match="missing: cost_usd, verdict"),
    ):
        store.put_facts(
            SessionKey("p", "ann", "s0"), facts(4, 1.0).drop("cost_usd", "verdict"), [], "1"
        )


def test_many_threads_read_the_same_rows(path: Path) -> None:
    scopes = [Scope(p, u) for p in ("p", "q") for u in ("ann", "bob")]
    with Store.open(path) as store:
        wanted = {scope: store.sessions(scope).rows() for scope in scopes}
        with ThreadPoolExecutor(8) as pool:
            got = list(
                pool.map(
                    lambda i: (scopes[i % 4], store.sessions(scopes[i % 4]).rows()), range(160)
                )
            )
    assert all(rows == wanted[scope] for scope, rows in got)
    assert len({repr(rows) for rows in wanted.values()}) == 4

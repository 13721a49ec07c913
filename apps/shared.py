"""What every page shares: the store, who may see what, and which session a link names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NoReturn

import streamlit as st

from analyzer import (
    AnalyzerError,
    Comparison,
    Scope,
    SessionDiagnosis,
    SessionKey,
    StoreError,
    UsageError,
    Workspace,
)
from analyzer.views.health import places_only
from analyzer.views.overview import Frame

SESSIONS = "screens/sessions.py"
SESSION = "screens/session.py"
STEP = "screens/step.py"
POLICIES = "screens/policies.py"
HEALTH = "screens/health.py"

_LAST = "last_session"
_OPEN_STORES = 8


def database() -> Path:
    """The store: ANALYZER_DB, or the file in the user's data folder."""
    named = os.environ.get("ANALYZER_DB")
    if named:
        return Path(named)
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "analyzer" / "analyzer.duckdb"


def scope() -> Scope:
    """Whose sessions this page may show: ANALYZER_PROJECT and ANALYZER_USER, where they are set."""
    return Scope(
        os.environ.get("ANALYZER_PROJECT") or None, os.environ.get("ANALYZER_USER") or None
    )


class View:
    """One published state of the store, seen within one scope.

    Sessions are reached through `key` and `diagnose` only: both know nothing outside the scope.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._compared = lru_cache(maxsize=64)(self._replayed)

    @property
    def stale(self) -> bool:
        """Whether a newer state was published since."""
        return self._workspace.store.stale

    @cached_property
    def overview(self) -> Frame:
        """One row a session; one query for each published state."""
        return self._workspace.sessions()

    @cached_property
    def _by_id(self) -> dict[str, list[SessionKey]]:
        named: dict[str, list[SessionKey]] = {}
        for row in self.overview.select("project", "user_id", "session_id").iter_rows():
            key = SessionKey(*row)
            named.setdefault(key.session_id, []).append(key)
        return named

    @cached_property
    def causes(self) -> Frame:
        """What each kind of finding cost."""
        return self._query("causes")

    @cached_property
    def files(self) -> Frame:
        """What was ingested."""
        return self._query("files")

    @cached_property
    def problems(self) -> Frame:
        """Places and reasons of what could not be read; the bytes are let go at once."""
        return places_only(self._query("problems"))

    def _query(self, name: str) -> Frame:
        return self._workspace.store.query(name, self._workspace.scope)

    def key(self, session: str, project: str | None = None, user: str | None = None) -> SessionKey:
        """The one session of the scope with this id, of any project or user where none is given.

        Raises `UsageError`, the same for a session outside the scope and for one that is nowhere.
        """
        named = self._by_id.get(session, ())
        fits = [k for k in named if project in (None, k.project) and user in (None, k.user)]
        if len(fits) == 1:
            return fits[0]
        where = f"in project {project!r}" if project is not None else "in any project"
        whom = f" of user {user!r}" if user is not None else ""
        if fits:
            raise UsageError(f"{len(fits)} sessions are called {session!r}; give project and user")
        raise UsageError(
            f"there is no session {session!r} {where}{whom} among the {self.overview.height:,} "
            "that you may see"
        )

    def own(self, key: SessionKey) -> SessionKey:
        """The key itself, if it is in the scope. Raises `UsageError`."""
        return self.key(key.session_id, key.project, key.user)

    def diagnose(self, key: SessionKey) -> SessionDiagnosis:
        """A session of the scope, judged. Raises `UsageError`."""
        return self._workspace.diagnose(self.own(key))

    def compare(self, key: SessionKey, specs: tuple[str, ...]) -> Comparison:
        """A session of the scope under some policies. Raises `UsageError`."""
        return self._compared(self.own(key), specs)

    def _replayed(self, key: SessionKey, specs: tuple[str, ...]) -> Comparison:
        return self._workspace.compare([key], specs)


@st.cache_resource(max_entries=_OPEN_STORES, show_spinner=False)
def _opened(path: str, project: str | None, user: str | None) -> View:
    return View(Workspace.open(Path(path), Scope(project, user)))


def view(*, needs_sessions: bool = True) -> View:
    """The newest published state; stops the page where there is nothing to show."""
    path, seen = database(), scope()
    if not path.exists():
        st.info("There is no store yet. Make one from traces, or from the samples:")
        st.code("analyzer ingest PATH...\nanalyzer demo", language=None)
        st.text(f"Looked for {path} (ANALYZER_DB names another place).")
        st.stop()
    try:
        found = _opened(str(path), seen.project, seen.user)
        if found.stale:
            # The old one is not closed: another page may be reading from it at this moment.
            _opened.clear(str(path), seen.project, seen.user)
            found = _opened(str(path), seen.project, seen.user)
    except StoreError as error:
        refuse("The store cannot be opened.", error)
    if needs_sessions and found.overview.is_empty():
        st.info("No session in scope. `analyzer ingest PATH` adds some.")
        st.text(f"Scope: project {seen.project or 'any'}, user {seen.user or 'any'}. Store: {path}")
        st.stop()
    return found


def refuse(what: str, error: AnalyzerError) -> NoReturn:
    """Say what cannot be shown and why, and stop the page; the reason may quote a trace or a link."""
    st.error(what, icon=":material/error:")
    st.code(str(error), language=None, wrap_lines=True)
    st.page_link(SESSIONS, label="All sessions", icon=":material/list:")
    st.stop()


def address(key: SessionKey, **more: object) -> dict[str, str]:
    """The query parameters of a link to a session, and to a lane, step or message of it."""
    named = {"project": key.project, "user": key.user, "session": key.session_id}
    rest = {name: str(value) for name, value in more.items() if value is not None}
    return named | rest


def current(seen: View) -> SessionKey:
    """The session that the link names, or the last one looked at; stops where there is none."""
    given = st.query_params
    if "session" not in given:
        last = st.session_state.get(_LAST)
        if last is None:
            st.info("Choose a session first: click a row of the list of sessions.")
            st.page_link(SESSIONS, label="All sessions", icon=":material/list:")
            st.stop()
        given.from_dict(last)
    try:
        key = seen.key(given["session"], given.get("project"), given.get("user"))
    except UsageError as error:
        refuse("This link names a session that is not here.", error)
    st.session_state[_LAST] = given.to_dict()
    return key


def judged(seen: View, key: SessionKey) -> SessionDiagnosis:
    """A session with its verdicts; stops the page where it cannot be read."""
    try:
        with st.spinner("Reading the session"):
            return seen.diagnose(key)
    except AnalyzerError as error:
        refuse("This session cannot be read.", error)


def from_link(name: str, options: Sequence[str], default: str, label: str) -> str:
    """A choice that the address of the page holds, so that a link and the back button restore it.

    The address decides and the widget follows: links to this page carry the value too, which a
    widget bound to the address would not let them set.
    """
    state = f"choice:{name}"
    given = st.query_params.get(name)
    st.session_state[state] = given if given in options else default

    def remember() -> None:
        st.query_params[name] = st.session_state[state]

    return st.selectbox(label, options, key=state, on_change=remember)


def number_from_link(name: str, count: int, what: str) -> int:
    """A number below `count` that the address holds (0 without one), with a field to change it."""
    given = st.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and int(given) < count):
        text = f"expected a {what} from 0 to {count - 1:,}, got {given!r}"
        refuse(f"This link names a {what} that is not here.", UsageError(text))
    state = f"number:{name}"
    st.session_state[state] = int(given)

    def remember() -> None:
        st.query_params[name] = str(st.session_state[state])
        st.query_params.pop("message", None)

    return int(
        st.number_input(
            f"{what.capitalize()} (0 to {count - 1:,})",
            min_value=0,
            max_value=count - 1,
            key=state,
            on_change=remember,
            width=180,
        )
    )


def message_from_link() -> int | None:
    """The index into the messages array that the address names; None where it names none."""
    given = st.query_params.get("message", "")
    digits = given.removeprefix("-")
    return int(given) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None

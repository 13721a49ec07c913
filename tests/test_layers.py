"""The shape of docs/architecture.md, held: layers, fences, plug-in folders, cycles and sizes.

Everything is read with `ast`, so an import inside a function or under TYPE_CHECKING counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

# Lowest first. A module imports only rows before its own, and no other name of its own row.
ROWS = (
    ("errors",),
    ("model",),
    ("ranges",),
    ("tokens", "pricing", "records", "wording", "content", "specs"),
    ("edits",),
    ("sources", "store", "caching", "policies"),
    ("reading",),
    ("reading",),
    ("intake",),
    ("ledger",),
    ("diagnose", "loss", "replay"),
    ("tune",),
    ("push",),
    ("comparison",),
    ("advice",),
    ("workspace",),
    ("views",),
    ("cli",),
    ("__main__",),
)
ROW_OF = {name: level for level, row in enumerate(ROWS) for name in row}

# (importer, imported): the one exception that the architecture itself makes.
SIDEWAYS = {("analyzer.loss.bound", "replay")}

# Folder -> (the module that registers its plug-ins, what is no plug-in among what that imports).
# A plug-in is whatever else of the folder the registering module imports; the rest is support.
PLUGIN_FOLDERS = {
    "sources": ("analyzer.sources", ("base",)),
    "caching": (
        "analyzer.caching",
        ("base", "example_file", "examples", "forest", "limits", "placement"),
    ),
    "policies": ("analyzer.policies", ("base", "recipe")),
    "diagnose": ("analyzer.diagnose.rules", ("base",)),
}
# Modules of such a folder that are no plug-ins and that `__init__` therefore does not reach.
UNREGISTERED = ("analyzer.sources.langfuse_api",)

# Third-party or standard module -> modules of ours that may import it.
FENCES = {
    "duckdb": ("analyzer.store*",),
    "polars": (
        "analyzer.store*",
        "analyzer.ledger*",
        "analyzer.views*",
        "analyzer.tune*",
        "analyzer.workspace",
    ),
    "plotly": ("analyzer.views.charts",),
    "streamlit": ("apps*",),
}
NETWORK = (
    "socket",
    "ssl",
    "http.client",
    "http.server",
    "urllib.request",
    "urllib3",
    "requests",
    "httpx",
    "httpx2",
    "aiohttp",
    "genai_prices.update_prices",
)
FENCES |= dict.fromkeys(NETWORK, ("analyzer.sources.langfuse_api", "analyzer.push*"))

FILE_LINES = 400
FUNCTION_LINES = 50


@dataclass(frozen=True)
class Module:
    """One file of ours, under its dotted name."""

    name: str
    path: Path
    tree: ast.Module
    is_package: bool

    @property
    def folder(self) -> str:
        """The name right below `analyzer`: the unit that layers speak of."""
        return self.name.split(".")[1] if "." in self.name else ""


class Import(NamedTuple):
    """One imported name: the module that an import statement reaches, and where it stands."""

    target: str
    place: str


@cache
def modules() -> dict[str, Module]:
    """Every Python file of the package and the apps."""
    found = {}
    for root in ("analyzer", "apps"):
        for path in sorted((CHECKOUT / root).rglob("*.py")):
            parts = path.relative_to(CHECKOUT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            found[name] = Module(name, path, tree, is_package)
    return found


def imports(module: Module) -> Iterator[Import]:
    """What a module imports, relative imports resolved; `from a import b` may reach module a.b."""
    for statement in ast.walk(module.tree):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield Import(alias.name, f"{module.path.name}:{statement.lineno}")
        elif isinstance(statement, ast.ImportFrom):
            source = origin(module, statement)
            for alias in statement.names:
                yield Import(f"{source}.{alias.name}", f"{module.path.name}:{statement.lineno}")


def origin(module: Module, statement: ast.ImportFrom) -> str:
    """The absolute module that a `from ... import` names."""
    if not statement.level:
        return statement.module or ""
    base = module.name.split(".")
    base = base[: len(base) - statement.level + (1 if module.is_package else 0)]
    return ".".join([*base, statement.module] if statement.module else base)


def own_target(imported: Import) -> str | None:
    """The module of ours that an import reaches; None if it is somebody else's."""
    name = imported.target
    while name:
        if name in modules():
            return name
        name = name.rpartition(".")[0]
    return None


def own_imports(module: Module) -> Iterator[tuple[str, str]]:
    """(module of ours, place) for each import of one, once a line."""
    reached = ((own_target(imported), imported.place) for imported in imports(module))
    yield from dict.fromkeys((target, place) for target, place in reached if target is not None)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a dotted name fits one of some glob patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns)


def inside() -> Iterator[Module]:
    """The modules of the package without its facade."""
    return (m for m in modules().values() if m.name.startswith("analyzer."))


def test_an_import_is_seen_wherever_it_stands() -> None:
    text = """
from typing import TYPE_CHECKING
import analyzer.store
from . import base
from ..errors import UsageError
if TYPE_CHECKING:
    from analyzer import model
def late():
    from urllib import request
"""
    module = Module("analyzer.sources.new", Path("new.py"), ast.parse(text), is_package=False)
    assert [imported.target for imported in imports(module)] == [
        "typing.TYPE_CHECKING",
        "analyzer.store",
        "analyzer.sources.base",
        "analyzer.errors.UsageError",
        "analyzer.model",
        "urllib.request",
    ]
    assert {t for t, _ in own_imports(module)} == {
        "analyzer.store",
        "analyzer.sources.base",
        "analyzer.errors",
        "analyzer.model",
    }


def test_every_module_has_a_row() -> None:
    strangers = sorted({m.folder for m in inside()} - ROW_OF.keys())
    assert not strangers, (
        f"give these a row in ROWS, and say it in docs/architecture.md: {strangers}"
    )


def test_a_module_imports_only_lower_rows() -> None:
    wrong = []
    for module in inside():
        for target, place in own_imports(module):
            folder = modules()[target].folder
            if not folder or folder == module.folder or (module.name, folder) in SIDEWAYS:
                continue
            if not ROW_OF.keys() >= {folder, module.folder}:
                continue  # reported by the test above
            if target.startswith("apps") or ROW_OF[folder] >= ROW_OF[module.folder]:
                wrong.append(f"{module.name} imports {target} ({place})")
    assert not wrong, "\n".join(wrong)


def test_nobody_inside_imports_the_facade() -> None:
    wrong = [
        f"{module.name} ({place})"
        for module in inside()
        for target, place in own_imports(module)
        if target == "analyzer"
    ]
    assert not wrong, f"import the module that defines the name instead: {wrong}"


def test_apps_import_only_the_facade_the_views_and_each_other() -> None:
    wrong = []
    for module in modules().values():
        if module.name.startswith("apps"):
            for target, place in own_imports(module):
                if not matches(target, ("analyzer", "analyzer.views*", "apps*")):
                    wrong.append(f"{module.name} imports {target} ({place})")
    assert not wrong, "\n".join(wrong)


def members(folder: str) -> set[str]:
    """The plug-ins of a folder: what it registers, without what all share."""
    home = f"analyzer.{folder}"
    registers, names = PLUGIN_FOLDERS[folder]
    shared = tuple(f"{home}.{name}{rest}" for name in names for rest in ("", ".*"))
    targets = {target for target, _ in own_imports(modules()[registers])}
    return {t for t in targets if t.startswith(home + ".") and not matches(t, shared)}


def reachable(home: str) -> set[str]:
    """Modules of a folder that its `__init__` imports, directly or through other modules of it."""
    seen: set[str] = set()
    waiting = [home]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            package = name.rpartition(".")[0]
            if package.startswith(home + "."):
                seen.add(package)  # it runs first, and may hold nothing but a docstring
            waiting += [t for t, _ in own_imports(modules()[name]) if t.startswith(home + ".")]
    return seen


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_only_its_register_imports_a_plugin(folder: str) -> None:
    plugins = members(folder)
    registers, _ = PLUGIN_FOLDERS[folder]
    wrong = [
        f"{module.name} imports {target} ({place})"
        for module in modules().values()
        if module.name != registers
        for target, place in own_imports(module)
        if target in plugins
    ]
    assert plugins, f"{registers} imports no plug-in at all"
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_every_module_of_a_plugin_folder_is_in_use(folder: str) -> None:
    home = f"analyzer.{folder}"
    names = {name for name in modules() if name.startswith(home + ".")}
    forgotten = sorted(names - reachable(home) - set(UNREGISTERED))
    assert not forgotten, f"{home}/__init__.py does not reach {forgotten}: register or remove them"


@pytest.mark.parametrize("fenced", FENCES)
def test_a_fenced_library_stays_behind_its_fence(fenced: str) -> None:
    wrong = [
        f"{module.name} imports {imported.target} ({imported.place})"
        for module in modules().values()
        for imported in imports(module)
        if (imported.target == fenced or imported.target.startswith(fenced + "."))
        and not matches(module.name, FENCES[fenced])
    ]
    assert not wrong, f"{fenced} belongs to {FENCES[fenced]}: {wrong}"


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{module.name}:{call.lineno}"
        for module in modules().values()
        if not matches(module.name, ("analyzer.cli*",))
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "print"
    ]
    assert not wrong, wrong


def test_nothing_catches_every_exception() -> None:
    wrong = [
        f"{module.name}:{handler.lineno}"
        for module in modules().values()
        for handler in ast.walk(module.tree)
        if isinstance(handler, ast.ExceptHandler)
        and (
            handler.type is None
            or (
                isinstance(handler.type, ast.Name)
                and handler.type.id in ("Exception", "BaseException")
            )
        )
    ]
    assert not wrong, wrong


def test_there_is_no_import_cycle() -> None:
    # A member importing a sibling through the folder's name reaches the `__init__`, hence a cycle.
    graph = {
        name: {target for target, _ in own_imports(module) if target != name}
        for name, module in modules().items()
    }
    while free := [name for name, targets in graph.items() if not targets]:
        for name in free:
            del graph[name]
        for targets in graph.values():
            targets.difference_update(free)
    assert not graph, f"in or above a cycle: {sorted(graph)}"


def test_no_file_is_longer_than_one_meaning() -> None:
    long = [
        f"{path.relative_to(CHECKOUT)}: {lines}"
        for path in [m.path for m in modules().values()]
        if (lines := path.read_text(encoding="utf-8").count("\n")) > FILE_LINES
    ]
    assert not long, f"more than {FILE_LINES} lines: {long}"


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{module.name}:{function.lineno} {function.name}: {lines}"
        for module in modules().values()
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES
    ]
    assert not long, f"more than {FUNCTION_LINES} lines: {long}"

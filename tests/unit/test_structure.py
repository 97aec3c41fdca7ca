"""The house: floors, links, module sizes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ecoagent"

# Ground floor first; inside a floor a package may import those listed before it.
FLOORS = [
    ["schema", "settings", "runs", "models", "metrics"],
    ["crawlers", "llm", "prompts", "retrieval"],
    ["reliability", "labeling", "synthesis", "rated", "feedback"],
    ["evaluation", "audit", "publish", "report"],
    ["flows"],
    ["cli"],
]
ORDER = {name: position for position, name in enumerate(n for floor in FLOORS for n in floor)}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"{path}: relative import")
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("ecoagent.") and n.split(".")[1] in ORDER}
    return found


def test_every_package_has_a_floor() -> None:
    packages = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    assert packages == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    if len(parts) == 1:
        assert not imported_packages(path), "the package itself imports nothing of its own"
        return
    wrong = {name for name in imported_packages(path) if ORDER[name] > ORDER[parts[0]]}
    assert not wrong, f"{parts[0]} must not import {sorted(wrong)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_stay_readable(path: Path) -> None:
    assert path.read_text("utf-8").count("\n") <= 420


def module_graph() -> dict[str, set[str]]:
    names = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts): p for p in MODULES}
    names = {n.removesuffix(".__init__"): p for n, p in names.items()}
    graph: dict[str, set[str]] = {n: set() for n in names}
    for name, path in names.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ecoagent"):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    target = full if full in names else node.module
                    if target in names and target != name:
                        graph[name].add(target)
    return graph


def test_no_circles_between_modules() -> None:
    graph = module_graph()
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> None:
        state[name] = 1
        for target in sorted(graph[name]):
            # A package's __init__ re-exports its modules, which may import siblings through it: not a circle
            # as long as no sibling imports the package itself.
            assert state.get(target) != 1, " -> ".join([*trail, name, target])
            if target not in state:
                visit(target, [*trail, name])
        state[name] = 2

    for name in sorted(graph):
        if name not in state:
            visit(name, [])


@pytest.mark.parametrize("name", ["flows", "crawlers", "schema", "prompts"])
def test_links_at_the_top(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("src") / "ecoagent" / name
    assert link.resolve() == (PACKAGE / name).resolve()


def test_what_the_design_card_asks_for_is_at_the_top() -> None:
    for name in (
        "pyproject.toml",
        "outputs",
        "tests",
        "dataset_card.md",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
    ):
        assert (ROOT / name).exists(), name

"""The house: imports go one way, the base needs nothing optional, and only the command line reads the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

PACKAGE = Path(__file__).parent.parent / "recbole_prism"
# Rooms from the ground up. A module may import its own room and those before it; the longest prefix decides.
FLOORS = (
    ("_compat", "errors", "progress"),
    ("model.functional",),
    ("model.layers",),
    ("model.sequential_recommender",),
    ("registry", "schema", "settings_files"),
    ("config_values",),
    ("config_columns",),
    ("config_checks",),
    ("config",),
    ("data",),
    ("evaluation",),
    ("run_directory", "run_artifact", "run_files", "run_identity"),
    ("trainer",),
    ("quick_start", "run_log", "run_outputs"),
    ("run_store",),
    ("serving", "diagnostics", "tuning"),
    ("experiments",),
    ("data_cli", "doctor"),
    ("experiments_cli", "reproduce_cli"),
    ("cli", "tuning_cli"),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MAY_READ_THE_PROCESS = {"cli", "data_cli", "experiments_cli", "reproduce_cli", "tuning_cli", "doctor", "__main__"}
OPTIONAL = ("ray", "hyperopt", "optuna", "matplotlib", "onnx", "onnxruntime", "faiss", "lightgbm", "xgboost", "wandb")

MODULES = sorted(path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = [part for part in path.parts if part != "__init__"]
    return ".".join(parts)


def floor_of(module: str) -> int:
    while module:
        if module in FLOOR:
            return FLOOR[module]
        module = module.rpartition(".")[0]
    return -1  # the package itself and `model`: doors, not rooms


def tree_of(path: Path) -> ast.Module:
    return ast.parse((PACKAGE / path).with_suffix(".py").read_text(encoding="utf-8"))


def imports_of(tree: ast.AST) -> Iterator[str]:
    """What is imported of this package, without its name in front; imports for type checking only do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            yield from imports_of(node)
            continue
        yield from (name.partition(".")[2] for name in names if name.startswith("recbole_prism."))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way(path: Path) -> None:
    module = name_of(path)
    floor = floor_of(module)
    if floor < 0:
        return
    for imported in imports_of(tree_of(path)):
        assert floor_of(imported) <= floor, f"{module} may not import {imported}"


def test_every_module_has_a_floor() -> None:
    doors = {"", "model"}
    assert {name_of(path) for path in MODULES if floor_of(name_of(path)) < 0} <= doors


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_nothing_below_the_command_line_reads_arguments_environment_or_working_directory(path: Path) -> None:
    if name_of(path) in MAY_READ_THE_PROCESS:
        return
    forbidden = {"argv", "environ", "getenv", "getcwd", "cwd", "chdir"}
    used = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
    assert not used & forbidden


def test_the_base_needs_nothing_optional_and_never_recboles_quick_start() -> None:
    check = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # an import of it fails
import recbole_prism
from recbole_prism import cli, config, doctor, registry
for name in registry.list_models():
    config.Config(name, "ml-100k")
doctor.report()
recbole_prism.run, recbole_prism.load
assert "recbole.quick_start" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", check], check=True, cwd=PACKAGE.parent)

"""What makes another run, and what a published report must not tell."""

from __future__ import annotations

import inspect
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from recbole_prism import run_identity
from recbole_prism.errors import RunDirectoryError
from recbole_prism.run_directory import (
    class_source,
    code_version,
    compute_identity,
    describe_device,
    environment_report,
)

VALUES = {"learning_rate": 1e-3, "topk": [5, 10], "eval_args": {"mode": "full", "order": "TO"}}


def test_identity_depends_on_values_data_and_code_only() -> None:
    identity = compute_identity(VALUES, "data", "code")
    assert re.fullmatch("[0-9a-f]{12}", identity)
    again = {"eval_args": {"order": "TO", "mode": "full"}, "topk": (5, 10), "learning_rate": 0.001}
    assert compute_identity(again, "data", "code") == identity  # the order of keys, lists or tuples: the same settings
    others = [
        compute_identity({**VALUES, "learning_rate": 2e-3}, "data", "code"),
        compute_identity({**VALUES, "topk": [10, 5]}, "data", "code"),
        compute_identity({**VALUES, "more": None}, "data", "code"),
        compute_identity(VALUES, "data 2", "code"),
        compute_identity(VALUES, "data", "code 2"),
    ]
    assert len({identity, *others}) == 6


def test_identity_names_what_it_cannot_take() -> None:
    with pytest.raises(RunDirectoryError, match="device is of type device"):
        compute_identity({"device": torch.device("cpu")}, "data", "code")


SOURCES = {
    "_compat.py": "x = 1",
    "cli.py": "from recbole_prism.model.layers import lens",
    "data/loader.py": "def f():\n    from recbole_prism.model.functional.hash import draw",
    "evaluation/__init__.py": "",
    "trainer/trainer.py": "from recbole_prism import model, registry",
    "model/__init__.py": "",
    "model/functional/__init__.py": "",
    "model/functional/hash.py": "import recbole_prism.errors",
    "model/functional/loss.py": "",
    "model/layers/__init__.py": "",
    "model/layers/encoder.py": "from . import attention",
    "model/layers/attention.py": "import torch",
    "model/layers/lens.py": "from ..functional.loss import info_nce",
    "model/first.py": "from recbole_prism.model.layers.encoder import Encoder",
    "model/second.py": "import recbole_prism.model.layers.lens\nfrom recbole_prism.model.first import First",
    "model/third.py": "import recbole_prism.model.third",
}
PARENTS = {"model/__init__.py", "model/layers/__init__.py", "model/functional/__init__.py"}
ALWAYS = {"_compat.py", "data/loader.py", "evaluation/__init__.py", "trainer/trainer.py", "model/functional/hash.py"}
FIRST = {"model/first.py", "model/layers/encoder.py", "model/layers/attention.py"}
CLOSURES = {
    "recbole_prism.model.first": ALWAYS | PARENTS | FIRST,
    "recbole_prism.model.second": ALWAYS
    | PARENTS
    | FIRST
    | {"model/second.py", "model/layers/lens.py", "model/functional/loss.py"},
    "recbole_prism.model.third": ALWAYS | PARENTS - {"model/layers/__init__.py"} | {"model/third.py"},
    "recbole.model.narm": ALWAYS | PARENTS - {"model/layers/__init__.py"},
    None: set(SOURCES) - {"cli.py"},
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        file = tmp_path / "recbole_prism" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{text}\n".encode())
    return tmp_path / "recbole_prism"


@pytest.mark.parametrize("module", CLOSURES, ids=str)
def test_a_result_depends_on_the_shared_rooms_and_on_what_its_model_imports(package: Path, module: str) -> None:
    assert set(run_identity.sources_of(package, module)) == CLOSURES[module]


@pytest.mark.parametrize("changed", SOURCES)
def test_an_edit_makes_another_version_for_exactly_those_who_import_it(package: Path, changed: str) -> None:
    before = {module: run_identity.digest_of(package, module) for module in CLOSURES}
    (package / changed).write_bytes((package / changed).read_bytes() + b"y = 2\n")
    after = {module: run_identity.digest_of(package, module) for module in CLOSURES}
    assert {module for module in CLOSURES if before[module] != after[module]} == {
        module for module, files in CLOSURES.items() if changed in files
    }


def test_a_new_model_leaves_the_others_what_they_are(package: Path) -> None:
    known = [module for module in CLOSURES if module]
    before = [run_identity.digest_of(package, module) for module in known]
    (package / "model/fourth.py").write_text("from recbole_prism.model.first import First\n")
    assert [run_identity.digest_of(package, module) for module in known] == before


def test_line_ends_of_a_checkout_make_no_other_version(package: Path) -> None:
    before = run_identity.digest_of(package, None)
    (package / "data/loader.py").write_bytes((package / "data/loader.py").read_bytes().replace(b"\n", b"\r\n"))
    assert run_identity.digest_of(package, None) == before


def test_code_version_tells_models_and_foreign_sources_apart() -> None:
    own = "recbole_prism.model.sequential_recommender"
    versions = [code_version(f"{own}.prism"), code_version(f"{own}.sasrec"), code_version("recbole.model.x")]
    versions += [code_version(), code_version(extra=b"y = 1\n"), code_version(extra=b"y = 2\n")]
    assert len(set(versions)) == 6
    assert code_version(extra=b"y = 1\r\n") == code_version(extra=b"y = 1\n")


def test_the_sources_of_a_real_model_are_those_python_imports() -> None:
    """An independent look: the modules that a fresh process holds after importing the model and the shared rooms."""
    target = "recbole_prism.model.sequential_recommender.sasrec"
    package = Path(inspect.getfile(run_identity)).parent
    shared = [f"recbole_prism.{room}" for room in ("data.loader", "evaluation.ranking", "trainer.trainer")]
    code = f"""
import importlib, sys
for name in {[*shared, target]!r}:
    importlib.import_module(name)
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("recbole_prism.model")), sep="\\n")
"""
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    loaded = {Path(line).relative_to(package).as_posix() for line in answer.stdout.split()}
    named = set(run_identity.sources_of(package, target))
    assert loaded <= named and "model/layers/lens.py" not in named  # SASRec without PRISM's part


def session_class(body: str, **defaults: Any) -> type:
    """A class as a prompt makes it: compiled from text that is in no file."""
    names: dict[str, Any] = {"__name__": "a_session", "DEFAULTS": defaults}
    exec(f"class Mine:\n    config_defaults = DEFAULTS\n{body}", names)
    return names["Mine"]


def test_class_without_a_file_is_known_by_its_settings_and_methods() -> None:
    method = "    def f(self, x=1):\n        return [x * {} for _ in 'ab' if x in {{'a', 'b'}}]\n"
    wrapped = "    @staticmethod\n    def f(x=1):\n        return {}\n"
    first = class_source(session_class(method.format(2), width=4))
    assert first == class_source(session_class("\n\n" + method.format(2), width=4))  # typed again further down
    others = [
        class_source(session_class(method.format(3), width=4)),
        class_source(session_class(method.format(2), width=8)),
        class_source(session_class(method.format(2).replace("x=1", "x=2"), width=4)),
        class_source(session_class(wrapped.format(1))),
        class_source(session_class(wrapped.format(2))),
    ]
    assert len({first, *others}) == 6
    assert b" at 0x" not in first  # addresses differ between sessions


def test_class_in_a_file_is_known_by_its_file() -> None:
    assert class_source(Path) == Path(str(inspect.getsourcefile(Path))).read_bytes()


def test_device_is_described_by_name_and_free_memory() -> None:
    assert re.fullmatch(r"cpu \(.+, \d+\.\d GB available\)", describe_device(torch.device("cpu")))


def test_environment_report_tells_versions_but_not_the_host() -> None:
    report = environment_report("cpu")
    assert report["versions"]["torch"] == torch.__version__ and report["versions"]["python"]
    assert report["device"] == "cpu" and report["threads"] == torch.get_num_threads()
    text = json.dumps(report)
    assert "/" not in text and "\\" not in text  # no paths
    assert f'"{socket.gethostname()}"' not in text

"""What makes another run, and what a published report must not tell."""

from __future__ import annotations

import inspect
import json
import re
import socket
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


def test_code_version_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "recbole_prism"
    for name in ("_compat.py", "data/a.py", "model/layers/b.py", "evaluation/c.py", "trainer/d.py", "cli.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(b"x = 1\n")
    monkeypatch.setattr(run_identity, "__file__", str(package / "run_identity.py"))

    def version(extra: bytes = b"") -> str:
        run_identity._package_version.cache_clear()
        return code_version(extra)

    first = version()
    (package / "cli.py").write_bytes(b"x = 2\n")
    assert version() == first  # no result depends on the command line's code
    (package / "data/a.py").write_bytes(b"x = 1\r\n")
    assert version() == first  # line ends of a Windows checkout
    (package / "model/layers/b.py").write_bytes(b"x = 2\n")
    second = version()
    third = version(b"y = 1\n")
    assert version(b"y = 1\r\n") == third
    assert len({first, second, third, version(b"y = 2\n")}) == 4
    run_identity._package_version.cache_clear()


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

"""The shims: each is needed, works, and leaves alone what it does not answer; wrong versions name the repair."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from recbole.config import configurator
from recbole.model.sequential_recommender import sine

from recbole_prism import _compat


def fake_version(monkeypatch: pytest.MonkeyPatch, package: str, version: str) -> None:
    real = metadata.version
    monkeypatch.setattr(_compat.metadata, "version", lambda name: version if name == package else real(name))


@pytest.mark.parametrize(
    ("package", "version", "repair"),
    [
        ("pandas", "3.0.0", "pip install 'pandas>=1.4,<3'"),
        ("pandas", "1.3.5", "pip install 'pandas>=1.4,<3'"),
        ("recbole", "1.3.0", "pip install 'recbole>=1.2.0,<1.3'"),
        ("recbole", "1.1.1", "pip install 'recbole>=1.2.0,<1.3'"),
        ("torch", "2.3.1+cu121", "pip install 'torch>=2.4'"),
    ],
)
def test_versions_outside_the_range_name_the_repair(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str, repair: str
) -> None:
    fake_version(monkeypatch, package, version)
    with pytest.raises(ImportError) as caught:
        _compat.check_versions()
    assert repair in str(caught.value) and version in str(caught.value)


@pytest.mark.parametrize(
    ("package", "version"), [("pandas", "1.4"), ("pandas", "2.99.1"), ("recbole", "1.2.0"), ("torch", "2.13.0+cpu")]
)
def test_versions_inside_the_range_pass(monkeypatch: pytest.MonkeyPatch, package: str, version: str) -> None:
    fake_version(monkeypatch, package, version)
    _compat.check_versions()


def test_a_missing_package_names_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_compat.metadata, "version", missing)
    with pytest.raises(ImportError, match="needs pandas: pip install"):
        _compat.check_versions()


def test_release_numbers() -> None:
    assert _compat._release("2.13.0+cpu") == (2, 13, 0)
    assert _compat._release("3.0.0rc1") == (3, 0, 0) and _compat._release("1.4.dev3") == (1, 4)


def test_numpy_names_are_put_back_and_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(configurator.Config.compatibility_settings)
    for name, value in (("float_", np.float64), ("complex_", np.complex128), ("unicode_", np.str_)):
        assert f"np.{name}" in source, f"RecBole no longer reads np.{name}: remove its shim"
        monkeypatch.delattr(np, name)
        _compat.restore_numpy_names()
        assert getattr(np, name) is value


def test_anomaly_detection_is_left_as_found_and_the_shim_still_needed() -> None:
    assert "set_detect_anomaly(True)" in inspect.getsource(sine), "RecBole repaired it: remove the shim"
    check = (
        "import sys, torch; torch.autograd.set_detect_anomaly(sys.argv[1] == 'True'); import recbole_prism;"
        "assert str(torch.is_anomaly_enabled()) == sys.argv[1]"
    )
    for setting in ("False", "True"):
        subprocess.run([sys.executable, "-W", "ignore", "-c", check, setting], check=True)

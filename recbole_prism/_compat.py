"""The only patches this package makes, applied before anything else of it is imported.

Each answers one line of RecBole 1.2 that fails or misbehaves on a current stack; none edits RecBole's files, and a
process that does not import `recbole_prism` is untouched. tests/test_compat.py fails for a shim no longer needed.
"""

from __future__ import annotations

import re
from importlib import metadata

import numpy as np


def _release(version: str) -> tuple[int, ...]:
    """Leading numeric parts of a version string: "2.13.0+cpu" -> (2, 13, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
    return tuple(numbers)


def check_versions() -> None:
    """Refuse versions on which RecBole 1.2 silently computes something else.

    Raises:
        ImportError: With the pip command that repairs the environment.
    """
    rules = [
        ("pandas", (1, 4), (3,), "pandas 3 leaves missing values unfilled in RecBole", "'pandas>=1.4,<3'"),
        ("recbole", (1, 2), (1, 3), "this package extends RecBole 1.2", "'recbole>=1.2.0,<1.3'"),
        ("torch", (2, 4), (99,), "fused Adam on the CPU needs torch 2.4", "'torch>=2.4'"),
    ]
    for package, low, high, why, wanted in rules:
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise ImportError(f"recbole_prism needs {package}: pip install {wanted}") from error
        if not low <= _release(found) < high:
            raise ImportError(f"recbole_prism cannot work with {package} {found} ({why}). Repair: pip install {wanted}")


def restore_numpy_names() -> None:
    """recbole/config/configurator.py `compatibility_settings` reads names that NumPy 2 removed."""
    for name, value in (("float_", np.float64), ("complex_", np.complex128), ("unicode_", np.str_)):
        if not hasattr(np, name):
            setattr(np, name, value)


def import_recbole_models() -> None:
    """recbole/model/sequential_recommender/sine.py:25 switches autograd anomaly detection on for the whole process.

    Steps are then 1.7x slower. The setting found before the import is put back; a user who wants detection keeps it.
    """
    import torch

    before = torch.is_anomaly_enabled()
    import recbole.model.sequential_recommender  # noqa: F401

    torch.autograd.set_detect_anomaly(before)


check_versions()
restore_numpy_names()
import_recbole_models()

"""RecBole 1.2 extension: PRISM and its baselines, fast, with numbers that can be trusted.

`result = recbole_prism.run(model="PRISM", dataset="ml-100k")` trains, tests and saves;
`recbole_prism.load(result["run_directory"])` gives the model back, anywhere and without the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recbole_prism import _compat  # noqa: F401  (first: the shims must stand before RecBole is touched)

if TYPE_CHECKING:
    from recbole_prism.quick_start import load, run

__version__ = "0.1.0"
__all__ = ["__version__", "load", "run"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import the entry points on first use, so that `import recbole_prism` stays light."""
    if name in ("run", "load"):
        from recbole_prism import quick_start

        return getattr(quick_start, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The names of Ray that moved between its versions.

Run with Ray 2.6.3, the last one that RecBole 1.2.1 accepts (Python up to 3.11). What is marked "newer Ray" is written
against its documentation (2.60, which Python 3.12 and above install) and has not been run.
"""

from __future__ import annotations

from typing import Any, Optional

from recbole_prism.errors import RecBolePrismError


def load_tune() -> Any:
    """Import `ray.tune`.

    Raises:
        RecBolePrismError: Ray Tune is not installed, or one of the packages it needs is of a version it cannot use.
    """
    try:
        from ray import tune
    except (ImportError, AttributeError) as error:  # AttributeError: names that NumPy 2 dropped
        raise RecBolePrismError(
            f"Ray Tune cannot be imported: {error}",
            "in the checkout: pip install '.[tune]' (Ray 2.6.3 needs numpy<2, pyarrow<26, setuptools<81)",
        ) from error
    return tune


def report(metrics: dict[str, Any]) -> None:
    """Tell Ray what a trial measured; called in the trial's process."""
    tune = load_tune()
    if _is_old(tune):
        from ray.air import session

        session.report(metrics)
    else:  # newer Ray
        tune.report(metrics)


def run_config(name: str, storage: str, callbacks: list[Any]) -> Any:
    """Where and how an experiment is kept.

    Args:
        name: Of its folder.
        storage: Folder that holds it; absolute, and the same on every node of a cluster.
        callbacks: `ray.tune.Callback` objects.
    """
    tune = load_tune()
    if _is_old(tune):
        from ray.air import RunConfig

        return RunConfig(name=name, storage_path=storage, callbacks=callbacks, verbose=0)
    return tune.RunConfig(name=name, storage_path=storage, callbacks=callbacks, verbose=0)  # newer Ray


def start(address: Optional[str]) -> bool:
    """Connect to a cluster, or start Ray on this machine, unless the caller did.

    Args:
        address: Of a cluster; None: this machine.

    Returns:
        Whether this call started it, so that it must be shut down again.
    """
    import ray

    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        ray.init(address=address, **quiet)
    else:
        ray.init(include_dashboard=False, object_store_memory=200_000_000, **quiet)  # hardly anything goes through it
    return True


def stop() -> None:
    """Shut Ray down."""
    import ray

    ray.shutdown()


def _is_old(tune: Any) -> bool:
    return not hasattr(tune, "RunConfig")

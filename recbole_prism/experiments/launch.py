"""Where the runs of a queue are made: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional, Protocol

from recbole_prism.errors import RecBolePrismError
from recbole_prism.tuning import ray_names

logger = logging.getLogger("recbole_prism")

STOP_SECONDS = 60.0  # an interrupted run has so long to write why it stopped
WORKER = (sys.executable, "-m", "recbole_prism.experiments.worker")


class Launched(Protocol):
    """A run that was started."""

    def poll(self) -> Optional[int]:
        """Exit status, negative for a signal; None while it runs."""

    def stop(self) -> None:
        """Ask it to end so that it can be gone on with. May be called twice, and after its end."""

    def wait(self, seconds: float) -> None:
        """Wait for its end; make an end of it after so many seconds."""


Launch = Callable[[Mapping[str, Any], Path], Launched]  # (arguments of quick_start.run, log file) -> the started run


class LocalRun:
    """A run in a process of its own on this machine.

    Args:
        arguments: Of `quick_start.run`.
        log: What the process prints is added to this file.
        worker: The process's command; reads the arguments as a line of JSON and stops when its input is closed.
    """

    def __init__(self, arguments: Mapping[str, Any], log: Path, worker: Sequence[str] = WORKER) -> None:
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                list(worker),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C reaches the queue alone, which stops its runs in good order
            )
        try:
            if self._process.stdin is not None:  # always: for the type checker
                self._process.stdin.write(json.dumps(arguments).encode("ascii") + b"\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            logger.debug("process %d ended before it read what to run", self._process.pid)

    def poll(self) -> Optional[int]:
        """See `Launched`."""
        return self._process.poll()

    def stop(self) -> None:
        """See `Launched`."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except BrokenPipeError:
            logger.debug("process %d had ended", self._process.pid)

    def wait(self, seconds: float) -> None:
        """See `Launched`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RayRun:
    """A run as a Ray task, which starts the same worker process on whatever node has room.

    Args:
        arguments: Of `quick_start.run`; its paths must be absolute and lead to the same places on every node.
        log: What the process prints is added to this file.
        n_gpus: The share of a GPU that the run takes.
    """

    def __init__(self, arguments: Mapping[str, Any], log: Path, n_gpus: float) -> None:
        import ray

        self._ray = ray
        n_cpus = arguments["config_dict"].get("n_threads") or 1
        task = ray.remote(_run_on_a_node).options(num_cpus=n_cpus, num_gpus=n_gpus, max_retries=0)
        self._task = task.remote(dict(arguments), str(log))

    def poll(self) -> Optional[int]:
        """See `Launched`; a task that Ray lost counts as killed."""
        done, _ = self._ray.wait([self._task], timeout=0)
        if not done:
            return None
        try:
            return self._ray.get(self._task)
        except (self._ray.exceptions.RayError, KeyboardInterrupt) as error:
            logger.debug("a Ray task ended with %s", error)
            return -9

    def stop(self) -> None:
        """See `Launched`."""
        self._ray.cancel(self._task)

    def wait(self, seconds: float) -> None:
        """See `Launched`."""
        self._ray.wait([self._task], timeout=seconds)
        self._ray.cancel(self._task, force=True)


def _run_on_a_node(arguments: dict[str, Any], log: str) -> int:
    """The Ray task: start a worker, and stop it when the task is cancelled. Returns its exit status."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    run = LocalRun(arguments, Path(log))
    try:
        while (status := run.poll()) is None:
            time.sleep(0.5)
        return status
    finally:
        run.stop()
        run.wait(STOP_SECONDS)


@contextmanager
def ray_cluster(address: str) -> Iterator[Launch]:
    """Connect to a Ray cluster for as long as a queue needs it.

    Args:
        address: "auto", "host:port", or "local" to start Ray on this machine.

    Yields:
        How to launch a run there: with as many CPUs as its `n_threads`, and with a GPU if the cluster has any and the
        run does not want the CPU.

    Raises:
        RecBolePrismError: Ray is not installed, or there is no cluster.
    """
    try:
        started = ray_names.start(None if address == "local" else address)
        import ray

        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    except (ImportError, ConnectionError, ValueError, AttributeError) as error:
        raise RecBolePrismError(
            f"no Ray cluster at {address}: {error}",
            "pip install '.[tune]' and `ray start --head`, or leave --address out",
        ) from error

    def launch(arguments: Mapping[str, Any], log: Path) -> Launched:
        wants_gpu = has_gpus and str(arguments["config_dict"].get("device", "auto")) != "cpu"
        return RayRun(arguments, log, 1.0 if wants_gpu else 0.0)

    try:
        yield launch
    finally:
        if started:
            ray_names.stop()

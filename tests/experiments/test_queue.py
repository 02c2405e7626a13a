"""The queue: order, reuse, failures, crashes, stops, budgets, and runs that another process makes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

import psutil
import pytest

from recbole_prism.errors import ConfigError
from recbole_prism.experiments import queue
from recbole_prism.experiments.launch import WORKER, LocalRun
from recbole_prism.experiments.queue import Job, Queue
from recbole_prism.quick_start import run
from recbole_prism.run_store import RunSpec, inspect
from tests.experiments import fakes


@pytest.fixture
def make(toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Queue]:
    """A queue of fake runs, named by what they do: make(a="complete", b="fail")."""
    monkeypatch.setattr(queue, "POLL_SECONDS", 0.01)
    config = fakes.config(toy_path, tmp_path / "runs", epochs=4)

    def build(options: Optional[dict[str, Any]] = None, **runs: str) -> Queue:
        places = {name: tmp_path / "runs" / name for name in runs}
        plan = {f"{name} s1": {"path": str(places[name]), "do": do} for name, do in runs.items()}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        jobs = [Job(RunSpec(name, name, "cyclic", 1), config, places[name]) for name in runs]
        command = fakes.worker(tmp_path / "plan.json")
        return Queue(jobs, tmp_path / "logs", launch=partial(LocalRun, worker=command), **(options or {}))

    return build


def states(jobs: Sequence[Job]) -> list[str]:
    return [job.state for job in jobs]


def test_runs_are_made_in_the_order_of_the_queue(make: Callable[..., Queue], tmp_path: Path) -> None:
    jobs = make(c="complete", a="complete", b="complete").run()
    assert states(jobs) == ["complete"] * 3 and not any(job.reused for job in jobs)
    assert [call["model"] for call in fakes.calls(tmp_path)] == ["c", "a", "b"]
    assert fakes.calls(tmp_path)[0]["config_dict"] == {"seed": 1}


def test_a_complete_run_is_reused_and_not_started(make: Callable[..., Queue], tmp_path: Path) -> None:
    make(a="complete").run()
    jobs = make(a="fail", b="complete").run()
    assert states(jobs) == ["complete", "complete"] and [job.reused for job in jobs] == [True, False]
    assert [call["model"] for call in fakes.calls(tmp_path)] == ["a", "b"]


def test_a_damaged_run_is_reported_and_left_alone(make: Callable[..., Queue], tmp_path: Path) -> None:
    make(a="complete").run()
    (tmp_path / "runs/a/metrics.json").write_text("changed")
    (job,) = make(a="complete").run()
    assert job.state == "damaged" and "metrics.json is damaged" in job.reason
    assert len(fakes.calls(tmp_path)) == 1 and (tmp_path / "runs/a/metrics.json").read_text() == "changed"


def test_a_failing_run_does_not_stop_the_others_and_says_why(make: Callable[..., Queue], tmp_path: Path) -> None:
    jobs = make(a="fail", b="complete").run()
    assert states(jobs) == ["failed", "complete"]
    assert jobs[0].reason == f"error: loss is nan ({tmp_path / 'logs/a-s1.log'})"
    assert jobs[0].attempts == 1  # an explained error comes again; a crash need not


def test_a_crashed_process_is_started_once_more(make: Callable[..., Queue]) -> None:
    once, always = make(a="crash once", b="crash").run()
    assert (once.state, once.attempts) == ("complete", 2)
    assert (always.state, always.attempts) == ("failed", 2) and "killed by signal 9" in always.reason


def test_a_run_under_another_identity_than_planned_is_no_success(make: Callable[..., Queue]) -> None:
    (job,) = make(a="write nothing").run()
    assert job.state == "failed" and "changed meanwhile" in job.reason


def test_a_stopped_queue_leaves_its_runs_to_be_gone_on_with(make: Callable[..., Queue], tmp_path: Path) -> None:
    def stop(jobs: Sequence[Job]) -> None:
        if jobs[0].progress.n_epochs == 1 and jobs[0].state == "running":
            raise KeyboardInterrupt

    stopped = make({"report": stop}, a="wait", b="complete")
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert states(stopped.jobs) == ["interrupted", "waiting"]
    assert inspect(tmp_path / "runs/a").state == "interrupted"
    again = make(a="wait", b="complete").run()
    assert states(again) == ["complete", "complete"] and not again[0].reused


def test_the_budget_ends_a_queue(make: Callable[..., Queue]) -> None:
    jobs = make({"budget_hours": 1.0 / 3600}, a="complete", b="wait", c="complete").run()
    assert states(jobs) == ["complete", "interrupted", "waiting"]
    assert jobs[1].progress.n_epochs == 1 and jobs[1].progress.best == 0.25
    assert jobs[1].progress.seconds_per_epoch == 3.0
    with pytest.raises(ConfigError, match="above 0"):
        make({"budget_hours": 0.0}, a="complete")


def test_as_many_runs_as_asked_for_run_at_the_same_time(make: Callable[..., Queue]) -> None:
    running: list[int] = []

    def watch(jobs: Sequence[Job]) -> None:
        running.append(sum(job.state == "running" for job in jobs))
        if sum(job.progress.n_epochs for job in jobs) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make({"n_jobs": 2, "report": watch}, a="wait", b="wait", c="wait").run()
    assert max(running) == 2


def test_one_place_is_never_used_by_two_runs_at_once(make: Callable[..., Queue], tmp_path: Path) -> None:
    twins = make({"n_jobs": 2}, a="complete", b="complete")
    twins.jobs[1].path = twins.jobs[0].path
    jobs = twins.run()
    assert states(jobs) == ["complete", "complete"] and jobs[1].reused
    assert len(fakes.calls(tmp_path)) == 1


def test_a_run_of_another_live_process_is_waited_for(make: Callable[..., Queue], tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        path = tmp_path / "runs/a"
        path.mkdir(parents=True)
        status = {"state": "running", "pid": other.pid, "host": socket.gethostname()}
        status["process_started"] = psutil.Process(other.pid).create_time()
        (path / "status.json").write_text(json.dumps(status))
        seen: list[str] = []

        def watch(jobs: Sequence[Job]) -> None:
            seen.append(jobs[0].state)
            if jobs[1].state == "complete" and other.poll() is None:
                other.kill()
                other.wait()

        jobs = make({"report": watch}, a="complete", b="complete").run()
    finally:
        other.kill()
        other.wait()
    assert states(jobs) == ["complete", "complete"]
    assert seen[0] == "elsewhere" and [call["model"] for call in fakes.calls(tmp_path)] == ["b", "a"]


def test_the_real_worker_stops_with_its_queue_and_the_run_goes_on(toy_path: Path, tmp_path: Path) -> None:
    small = {"hidden_size": 8, "inner_size": 8, "n_layers": 1, "train_batch_size": 64, "MAX_ITEM_LIST_LENGTH": 5}
    places = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path / "runs"), "device": "cpu", "n_threads": 1}
    spec = RunSpec("name", "SASRec", "cyclic", 1, {**small, **places, "epochs": 40, "stopping_step": 40})
    worker = subprocess.Popen(WORKER, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(spec.arguments()).encode() + b"\n")
    worker.stdin.flush()
    while not list((tmp_path / "runs").glob("cyclic/*/resume/state.safetensors")):
        assert worker.poll() is None
        time.sleep(0.005)
    worker.stdin.close()  # as when the queue is killed
    assert worker.wait() == 130
    (path,) = (tmp_path / "runs/cyclic").iterdir()
    before = (path / "history.jsonl").read_text().splitlines()
    assert inspect(path).state == "interrupted" and 1 <= len(before) < 40
    result = run(**spec.arguments())
    after = (path / "history.jsonl").read_text().splitlines()
    assert result["run_directory"] == str(path) and inspect(path).state == "complete"
    assert after[: len(before)] == before and len(after) == result["n_epochs"] == 40

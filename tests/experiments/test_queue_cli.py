"""The verbs queue, benchmark and slim as they are typed, and what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from recbole_prism import experiments_cli
from recbole_prism.cli import main
from recbole_prism.config import Config
from recbole_prism.experiments.launch import ray_cluster
from recbole_prism.experiments.queue import Job, Queue, plan_jobs
from recbole_prism.experiments.queue_table import all_lines, duration, live_lines, seconds_left, summary_line
from recbole_prism.run_store import RunProgress, RunSpec, RunStore
from tests.experiments import fakes


class Instant:
    """A run that is complete at once; with seed 13 it fails."""

    def __init__(self, arguments: Mapping[str, Any], log: Path) -> None:
        self._status = 2 if arguments["config_dict"]["seed"] == 13 else 0
        log.write_text("error: no luck\n  -> another seed\n")
        if self._status == 0:
            fakes.complete_by_hand(RunStore().place(Config(**arguments)), {})

    def poll(self) -> Optional[int]:
        return self._status

    def stop(self) -> None:
        """It has ended."""

    def wait(self, seconds: float) -> None:
        """It has ended."""


class Measured(Instant):
    """A run that is complete at once, with numbers; SASRec fails with seed 2021."""

    def __init__(self, arguments: Mapping[str, Any], log: Path) -> None:
        log.write_text("error: no luck\n")
        seed, place = arguments["config_dict"]["seed"], RunStore().place(Config(**arguments))
        self._status = 2 if (arguments["model"], seed) == ("SASRec", 2021) else 0
        if self._status == 0:
            ranks = [seed - 2020, 0, 9] if arguments["model"] == "PRISM" else [9, 9, 0]
            fakes.measured_run(place.parent, arguments["model"], seed, ranks, identity=place.name.split("-")[1])


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments_cli, "LocalRun", Instant)
    monkeypatch.setattr("recbole_prism.experiments.queue.POLL_SECONDS", 0.0)


@pytest.fixture
def file(tmp_path: Path, toy_path: Path) -> Path:
    text = "defaults: {device: cpu, epochs: 7}\nruns: [{name: a, model: SASRec, dataset: cyclic, seeds: [1, 13, 2]}]"
    (tmp_path / "q.yaml").write_text(text)
    return tmp_path / "q.yaml"


def test_a_queue_from_the_command_line(
    file: Path, toy_path: Path, instant: None, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"--data_path={toy_path}", f"--checkpoint_dir={file.parent / 'runs'}"]
    assert main(["queue", str(file), *places, "--status"]) == 0
    assert "3 runs: 3 waiting" in capsys.readouterr().out and not (file.parent / "runs").exists()
    assert main(["queue", str(file), *places, "--jobs=2"]) == 1
    shown = capsys.readouterr().out
    log = file.parent / "runs/logs/queue-q/a-s13.log"
    assert f"not made:\n  a s13: error: no luck ({log})" in shown
    assert "3 runs: 2 complete, 1 failed" in shown
    assert main(["queue", str(file), *places, "--status"]) == 0
    assert "a s1   reused" in capsys.readouterr().out
    file.write_text(file.read_text().replace(", 13", ""))
    assert main(["queue", str(file), *places]) == 0
    assert "2 runs: 2 complete (2 reused)" in capsys.readouterr().out


def test_a_wrong_queue_is_refused_before_anything_is_made(
    file: Path, toy_path: Path, instant: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace("epochs", "epoch"))
    assert main(["queue", str(file), f"--data_path={toy_path}", f"--checkpoint_dir={file.parent / 'runs'}"]) == 2
    assert "a s1: unknown" in capsys.readouterr().err and not (file.parent / "runs").exists()
    assert main(["queue", str(file), "--jobs=0"]) == 2
    assert main(["queue", str(file.parent / "nothing.yaml")]) == 2


def test_a_benchmark_from_the_command_line(
    toy_path: Path, tmp_path: Path, instant: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiments_cli, "LocalRun", Measured)
    options = [f"--data_path={toy_path}", f"--checkpoint_dir={tmp_path / 'runs'}", f"--to={tmp_path / 'out'}"]
    assert main(["benchmark", "--models=PRISM,SASRec", "--datasets=cyclic", "--seeds=2", *options]) == 1
    shown = capsys.readouterr().out
    page = (tmp_path / "out/benchmark.md").read_text()
    assert "The table lacks SASRec-cyclic s2021 (failed)." in page and "SASRec-cyclic s2021: error: no luck" in shown
    # Hit@1 of PRISM: 2/3 and 1/3; of SASRec: 1/3
    assert "| PRISM | **0.5000 ± 0.2357** |" in page and "| SASRec | <ins>0.3333</ins> |" in page and "+50.0 %" in page
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".tex", ".csv", ".json"}
    again = ["benchmark", "--models=prism", "--datasets=cyclic", "--seeds=2", *options]
    assert main(again) == 0 and "2 complete (2 reused)" in capsys.readouterr().out


def job(name: str, config: Config, state: str, **progress: Any) -> Job:
    return Job(RunSpec(name, "SASRec", "cyclic", 1), config, Path(name), state=state, progress=RunProgress(**progress))


def test_time_left_by_hand(toy_path: Path, tmp_path: Path) -> None:
    config = fakes.config(toy_path, tmp_path, epochs=100)
    alone = [job("a", config, "running", n_epochs=4, seconds=40.0), job("b", config, "waiting")]
    assert seconds_left(alone[0], alone) == 96 * 10  # nothing alike has finished: all epochs
    assert seconds_left(alone[1], alone) == 100 * 10
    done = [*alone, job("c", config, "complete", n_epochs=24, seconds=240.0)]
    assert seconds_left(done[0], done) == 20 * 10 and seconds_left(done[1], done) == 24 * 10
    assert seconds_left(done[2], done) == 0
    late = [job("a", config, "running", n_epochs=30, seconds=300.0), done[2]]
    assert seconds_left(late[0], late) == 10  # longer than the others: one more epoch is all that is known
    other = replace(alone[1], spec=RunSpec("x", "GRU4Rec", "cyclic", 1))
    assert seconds_left(other, [*done, other]) is None
    assert "about 4 min left" in summary_line(done, 2, 1.0)  # (200 s + 240 s) / 2
    assert summary_line(done, 2) == "3 runs: 1 running, 1 waiting, 1 complete, about 4 min left"
    assert "1 runs of unknown length" in summary_line([*done, other], 2, 1.0)


def test_what_a_table_shows(toy_path: Path, tmp_path: Path) -> None:
    config = fakes.config(toy_path, tmp_path, epochs=9)
    jobs = [
        replace(job("done", config, "complete", n_epochs=5, seconds=5.0, best=0.5, best_epoch=3), reused=True),
        job("now", config, "running", n_epochs=2, seconds=4.0, best=0.25, best_epoch=1),
        replace(job("bad", config, "failed"), reason="error: why"),
        *(job(f"w{number}", config, "waiting") for number in range(7)),
    ]
    live = live_lines(jobs, 1, 60.0)
    assert "10 runs: 1 complete (1 reused), 1 running, 1 failed, 7 waiting; 60 s passed" in live[0]
    assert "now s1" in live[1] and "2 of 9 epochs, best ndcg@20 0.2500 in epoch 1" in live[1]
    assert "w4 s1" in live[6] and "bad s1" in live[7] and "error: why" in live[7] and live[8] == "  and 2 more"
    whole = all_lines(jobs, 1, 60.0)
    assert len(whole) == 11 and "done s1" in whole[1] and "reused" in whole[1] and "5 epochs" in whole[1]


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 89.0, 90.0, 3600.0, 5400.0)] == ["0 s", "89 s", "2 min", "60 min", "1.5 h"]


@pytest.mark.slow
def test_runs_on_a_ray_cluster(toy_path: Path, tmp_path: Path) -> None:
    small = {"hidden_size": 8, "inner_size": 8, "n_layers": 1, "MAX_ITEM_LIST_LENGTH": 5, "epochs": 2, "n_threads": 1}
    places = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path / "runs"), "device": "cpu"}
    specs = [RunSpec("a", "SASRec", "cyclic", seed, {**small, **places}) for seed in (1, 2)]
    specs.append(RunSpec("long", "SASRec", "cyclic", 3, {**small, **places, "epochs": 5000, "stopping_step": 5000}))
    with ray_cluster("local") as launch:
        queue = Queue(plan_jobs(specs), tmp_path / "logs", n_jobs=2, launch=launch, report=_stop_when_the_last_runs)
        with pytest.raises(KeyboardInterrupt):
            queue.run()
    assert [entry.state for entry in queue.jobs] == ["complete", "complete", "interrupted"]
    assert queue.jobs[2].progress.n_epochs >= 1


def _stop_when_the_last_runs(jobs: list[Job]) -> None:
    if jobs[0].state == jobs[1].state == "complete" and jobs[2].progress.n_epochs:
        raise KeyboardInterrupt

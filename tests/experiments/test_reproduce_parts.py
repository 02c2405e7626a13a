"""Studies, trends, costs and estimates of `reproduce`, against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from recbole_prism import registry
from recbole_prism.config import Config
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.errors import ConfigError
from recbole_prism.experiments import claims
from recbole_prism.experiments.cost_report import complexity_lines, convergence_rows
from recbole_prism.experiments.costs import cost_of, exponent_of, printed_space, printed_time, prism_parameters
from recbole_prism.experiments.estimate import Estimate, Speed, total
from recbole_prism.experiments.printed import printed_costs, printed_values
from recbole_prism.experiments.queue import Job
from recbole_prism.experiments.studies import PAPER_DATASETS, PAPER_MODELS, STUDIES, find_study
from recbole_prism.experiments.study_figures import save_sweep, scores
from recbole_prism.run_artifact import RunArtifact
from recbole_prism.run_outputs import n_parameters
from tests.experiments.fakes import measured_run


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_run_of_a_study_has_settings_that_are_accepted(study: Any) -> None:
    listed = {registry.resolve(name).name for name in registry.list_models()}
    for variant in study.variants:
        if registry.nearest(variant.model, listed) is None:
            continue
        Config(variant.model, "ml-100k", None, {**study.settings, **variant.settings})
    assert len({variant.key for variant in study.variants}) == len(study.variants)
    assert all(study.variant(claim.better) and study.variant(claim.worse) for claim in study.claims)


def test_runs_of_the_first_seed_come_first_and_each_once() -> None:
    specs = STUDIES["table3"].specs(["a", "b"], [1, 2], {"epochs": 3, "spm": True})
    assert [spec.seed for spec in specs] == [1] * 10 + [2] * 10
    assert len({spec.label for spec in specs}) == 20
    assert specs[3].settings == {"spm": True, "epochs": 3}  # "w/o SPM": what the caller sets is stronger
    assert specs[1].settings == {"spcl": False, "epochs": 3, "spm": True}


def test_only_the_rows_asked_for_with_the_claims_about_them() -> None:
    study = find_study("figure5", ["sasrec", "PRISM"])
    assert [variant.key for variant in study.variants] == ["sasrec", "prism"] and study.claims == ()
    assert find_study("table3", ["PRISM", "w/o SPCL"]).claims == STUDIES["table3"].claims[:1]
    with pytest.raises(ConfigError, match="has no 'LightGCN'"):
        find_study("table2", ["LightGCN"])
    with pytest.raises(ConfigError, match="'figure55'"):
        find_study("figure55")


def test_the_paper_stands_beside_the_right_rows() -> None:
    study = STUDIES["table3"]
    assert printed_values(study, study.variant("no-spm"), "ml-1m") == {"hit@20": 0.3844, "ndcg@20": 0.1852}
    study = STUDIES["table2"]
    assert {variant.printed for variant in study.variants} == set(PAPER_MODELS)
    for dataset in PAPER_DATASETS:
        assert all(len(printed_values(study, variant, dataset)) == 6 for variant in study.variants)
    study = STUDIES["figure8"]
    assert [printed_values(study, variant, "amazon-toys").get("ndcg@20") for variant in study.variants] == [
        None,
        0.0751,
        0.0728,
        0.0744,
    ]
    assert printed_costs(study.variant("prism-k2"), "amazon-toys") == {"test seconds": 4.0}
    assert printed_costs(study.variant("prism-k2"), "ml-1m") == {}


def runs(folder: Path, name: str, ranks: dict[int, Any]) -> dict[int, RunArtifact]:
    return {seed: measured_run(folder, name, seed, list(found)) for seed, found in ranks.items()}


def test_a_trend_is_judged_by_how_often_its_sign_comes_back(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    weak = draw.integers(0, 40, size=400)
    better = runs(tmp_path, "Better", {1: np.maximum(weak - 8, 0), 2: np.maximum(weak - 6, 0)})
    worse = runs(tmp_path, "Worse", {1: weak, 2: weak, 3: weak})
    verdict = claims.judge(better, worse, "hit@20")
    hits = [np.mean(np.maximum(weak - shift, 0) < 20) for shift in (8, 6)]
    assert verdict.difference == pytest.approx(np.mean(hits) - np.mean(weak < 20))
    assert verdict.percent == pytest.approx(100 * (np.mean(hits) / np.mean(weak < 20) - 1))
    assert (verdict.state, verdict.confidence, verdict.n_seeds) == (claims.HOLDS, 1.0, 2)
    mirrored = claims.judge(worse, better, "hit@20")
    assert (mirrored.state, mirrored.confidence) == (claims.OPPOSITE, 0.0)
    assert mirrored.difference == pytest.approx(-verdict.difference)


def test_a_difference_within_chance_is_open_and_none_at_all_is_even(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    one, other = draw.integers(0, 40, size=(2, 300))
    a, b = runs(tmp_path, "A", {1: one}), runs(tmp_path, "B", {1: other})
    p = claims.judge(a, b, "ndcg@20").confidence or 0.0
    # the bootstrap's share is near the normal one of the paired differences
    differences = claims.row_metric(a[1], "ndcg@20") - claims.row_metric(b[1], "ndcg@20")
    z = differences.mean() / (differences.std() / math.sqrt(300))
    assert p == pytest.approx(0.5 * (1 + math.erf(z / math.sqrt(2))), abs=0.03)
    assert claims.judge(a, a, "ndcg@20").confidence == 0.5
    assert claims.judge(a, {2: b[1]}, "ndcg@20").state == claims.NO_RUNS


def test_seeds_that_disagree_leave_a_trend_open(tmp_path: Path) -> None:
    flat = np.full(200, 10)
    a = runs(tmp_path, "A", {1: flat - 5, 2: flat + 5})
    b = runs(tmp_path, "B", {1: flat, 2: flat})
    assert claims.judge(a, b, "ndcg@20").state == claims.OPEN


@pytest.mark.parametrize(
    "changes", [{}, {"n_lenses": 8, "hidden_size": 32}, {"n_layers": 3, "inner_size": 48}], ids=str
)
def test_parameters_by_formula_are_those_of_the_model(toy_path: Path, changes: dict[str, Any]) -> None:
    settings = {"data_path": str(toy_path), "device": "cpu", "MAX_ITEM_LIST_LENGTH": 9, **changes}
    config = Config("PRISM", "cyclic", None, settings)
    info = data_preparation(config, create_dataset(config))[0].info
    model = config.model_class(config, info)
    assert prism_parameters(config.resolved(), info.n_items) == n_parameters(model)


def test_parameters_on_toys_are_those_of_the_document() -> None:
    config = Config("PRISM", "ml-100k").resolved()
    assert prism_parameters(config, 11925) == 908_673
    k2, k8 = (prism_parameters({**config, "n_lenses": k}, 11925) for k in (2, 8))
    assert k8 - k2 == 768


def test_exponents_of_a_power_law_and_their_error() -> None:
    found = exponent_of([10, 20, 40], [3 * t**1.5 for t in (10, 20, 40)])
    assert found.exponent == pytest.approx(1.5) and found.error == pytest.approx(0, abs=1e-9)
    assert exponent_of([2, 8], [5.0, 5.0]).error is None
    # ln 2 apart, costs e^0, e^1, e^1: slope 1 / (2 ln 2), residuals (1, -2, 1) / 6 -> error sqrt(1 / 12) / ln 2
    bent = exponent_of([1, 2, 4], [1.0, math.e, math.e])
    assert bent.exponent == pytest.approx(1 / (2 * math.log(2)))
    assert bent.error == pytest.approx(math.sqrt(1 / 6 / 2) / math.log(2))


def test_printed_formulas() -> None:
    assert printed_time(50, 64, 4) == 50 * 50 * 4 * 64 + 50 * 4 * 64 * 64
    assert printed_space(50, 64, 4) == 4 * 114**2


def finished(model: str, dataset: str, seconds: float, rows: int, n: int, epochs: int = 300) -> RunArtifact:
    record = {"train_seconds": seconds - 1, "valid_seconds": 1.0, "rows": rows}
    values = {"model": {"name": model}, "dataset": {"name": dataset}, "history": [record] * n}
    return cast(RunArtifact, SimpleNamespace(**values, config={"epochs": epochs}))


def job(model: str, dataset: str, epochs: int = 300, **progress: Any) -> Job:
    known = {"n_epochs": 0, "seconds_per_epoch": None, **progress}
    config = SimpleNamespace(model_entry=SimpleNamespace(name=model))

    class Settings(dict):
        model_entry = config.model_entry

    found = SimpleNamespace(
        is_open=True, config=Settings(dataset=dataset, epochs=epochs), progress=SimpleNamespace(**known)
    )
    return cast(Job, found)


def test_time_is_estimated_from_the_most_alike_runs() -> None:
    speed = Speed([finished("PRISM", "toys", 20.0, 1000, 40), finished("PRISM", "toys", 40.0, 1000, 60)])
    # 0.02 and 0.04 s per row -> 0.03; 40 and 60 epochs -> 50
    assert speed.of(job("PRISM", "toys"), 1000).seconds == pytest.approx(50 * 30)
    assert speed.of(job("PRISM", "beauty"), 2000).seconds == pytest.approx(50 * 60)
    assert speed.of(job("PRISM", "toys", epochs=10), 1000).seconds == pytest.approx(10 * 30)
    begun = speed.of(job("PRISM", "toys", n_epochs=20, seconds_per_epoch=7.0), 1000)
    assert begun.seconds == pytest.approx(30 * 7)
    assert speed.of(job("SASRec", "toys"), 1000).seconds is None


def test_without_a_finished_run_all_epochs_are_a_bound() -> None:
    speed = Speed([finished("PRISM", "toys", 20.0, 1000, 5, epochs=5)])  # it was cut off, not stopped
    estimate = speed.of(job("PRISM", "toys"), 1000)
    assert estimate.is_bound and estimate.seconds == pytest.approx(300 * 20)


def test_the_sum_tells_of_what_is_not_known() -> None:
    assert total([Estimate(10.0, ""), Estimate(None, ""), Estimate(20.0, "")], n_jobs=2) == (15.0, 1)


def costly(cpu_seconds: float, memory: float, epochs: int = 3, best: int = 1) -> RunArtifact:
    """A run of which each epoch has 100 rows, took that much CPU and twice that on the wall, a tenth for validation."""
    record = {"train_seconds": 1.8 * cpu_seconds, "valid_seconds": 0.2 * cpu_seconds}
    values = {
        "history": [{**record, "cpu_seconds": cpu_seconds, "rows": 100}] * epochs,
        "environment": {"n_parameters": 7, "peak_memory_mb": memory},
        "metrics": {"epoch": best, "seconds": {"test": 0.5}},
    }
    return cast(RunArtifact, SimpleNamespace(**values))


def test_costs_of_a_run() -> None:
    cost = cost_of(costly(10.0, 300.0))
    assert (cost.epoch_seconds, cost.epoch_cpu_seconds, cost.cpu_per_row) == (18.0, 10.0, 0.1)
    assert (cost.best_epochs, cost.all_epochs, cost.seconds_to_best, cost.seconds) == (2, 3, 40.0, 60.0)
    assert (cost.cpu_seconds, cost.memory_mb, cost.test_seconds, cost.parameters) == (30.0, 300.0, 0.5, 7)


def test_convergence_is_told_relative_to_the_first_row() -> None:
    study = find_study("table7", ["SASRec", "PRISM K=4"])
    _, sasrec, prism = convergence_rows(study, "x", {"sasrec": {1: costly(2.0, 1)}, "prism-k4": {1: costly(5.0, 1)}})
    assert sasrec == ["SASRec", "x", "1", "2", "3", "8", "12", "6", "1.00"]
    assert prism == ["PRISM K=4", "x", "1", "2", "3", "20", "30", "15", "2.50"]


def test_exponents_stand_beside_those_of_the_formula() -> None:
    found = {f"T-{t}": {1: costly(t**1.5, 50.0 * t)} for t in (10, 20, 40)}
    lines, rows = complexity_lines("x", found)
    assert rows[0][:6] == ["x", "T", "CPU seconds per row", "1.500", "0.00", "3"]
    assert rows[1][:4] == ["x", "T", "memory", "1.000"]
    # d = 64, K = 4: T^2 K d + T K d^2 = K d T (T + d), so the slope over T lies between 1 and 2
    x, y = [math.log(t) for t in (10, 20, 40)], [math.log(t * (t + 64)) for t in (10, 20, 40)]
    assert float(rows[0][6]) == pytest.approx(float(np.polyfit(x, y, 1)[0]), abs=5e-4)
    assert sum("too few runs" in line for line in lines) == 2  # of d and of K


def test_picture_of_a_sweep_is_made_of_stored_ranks(tmp_path: Path) -> None:
    one = measured_run(tmp_path, "PRISM", 1, [0, 3, 9, 30])
    assert scores({1: one}, "hit@5") == [one.metrics["splits"]["test"]["masked"]["hit@5"]] == [0.5]
    found = {"K-4": {1: one}, "tau-0.1": {1: one}}
    file = save_sweep(STUDIES["figure9"], "amazon-toys", found, tmp_path)
    assert file.name == "figure9_amazon-toys.png" and file.read_bytes().startswith(b"\x89PNG")

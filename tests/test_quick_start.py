"""`run` and `load`: from settings to a result, and from a run directory back to a model."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recbole_prism
from recbole_prism.config import Config
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.errors import ConfigError, ModelError, NonFiniteError, RunDirectoryError
from recbole_prism.evaluation.metrics import compute_metrics
from recbole_prism.evaluation.ranking import rank_rows
from recbole_prism.quick_start import load, run
from recbole_prism.registry import list_models
from recbole_prism.run_directory import read_run
from tests import toy
from tests.user_model import LastItem

MODELS = (
    "PRISM", "SASRec", "GRU4Rec", "BERT4Rec", "CL4SRec", "DuoRec", "ACSASRec", "FAME", "NARM", "Caser",
    "recbole:SASRec", "tests.user_model:LastItem",
)  # fmt: skip


def settings(data: Path, runs: Path, **changes: Any) -> dict[str, Any]:
    return {
        "data_path": str(data),
        "checkpoint_dir": str(runs),
        "device": "cpu",
        "epochs": 2,
        "MAX_ITEM_LIST_LENGTH": 12,
        **changes,
    }


def train(data: Path, runs: Path, model: str = "GRU4Rec", dataset: str = "cyclic", **changes: Any) -> dict[str, Any]:
    return run(model, dataset, config_dict=settings(data, runs, **changes))


def measured(result: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a result that no clock and no place has a say in."""
    return {key: result[key] for key in result if key not in ("seconds", "run_directory", "reused")}


@pytest.fixture(scope="module")
def finished(toy_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one complete run; its directory is only read."""
    return train(toy_path, tmp_path_factory.mktemp("finished"))


@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_trains_and_scores_the_same_when_loaded(toy_path: Path, tmp_path: Path, model: str) -> None:
    result = train(toy_path, tmp_path, model, epochs=1)
    loaded = load(result["run_directory"], "cpu")
    config = Config(model, "cyclic", config_dict=settings(toy_path, tmp_path, epochs=1))
    _, valid, test = data_preparation(config, create_dataset(config))
    for split, loader in (("valid", valid), ("test", test)):
        again = rank_rows(
            loaded.model, loader, n_items=41, mask_history=True, memory_gb=1.0, device="cpu", n_top=20
        ).to_arrays()
        for name, array in loaded.run.ranks(split).to_arrays().items():
            np.testing.assert_array_equal(array, again[name], err_msg=f"{split} {name}")


@pytest.mark.parametrize(
    "model",  # Caser has a filter for each of 50 heights
    [pytest.param(name, marks=pytest.mark.slow) if name == "Caser" else name for name in list_models()],
)
def test_every_listed_model_starts_with_model_and_dataset_alone(toy_path: Path, tmp_path: Path, model: str) -> None:
    result = run(
        model, "cyclic", config_dict={"data_path": str(toy_path), "checkpoint_dir": str(tmp_path), "epochs": 1}
    )
    assert result["n_epochs"] == 1 and 0 <= result["test_result"]["hit@20"] <= 1
    mask_token = 41 if model == "BERT4Rec" else None
    assert read_run(result["run_directory"]).dataset["mask_token"] == mask_token


def test_result_is_what_the_stored_ranks_give(finished: dict[str, Any]) -> None:
    stored = read_run(finished["run_directory"])
    for split, expected in (("valid", finished["best_valid_result"]), ("test", finished["test_result"])):
        again = compute_metrics(
            stored.ranks(split), ["Hit", "NDCG"], [5, 10, 20], mask_history=True, item_counts_train=None, n_items=41
        )
        assert again == expected == stored.metrics["splits"][split]["masked"]
    other = compute_metrics(
        stored.ranks("test"), ["Hit", "NDCG"], [5, 10, 20], mask_history=False, item_counts_train=None, n_items=41
    )
    assert other == finished["test_result_unmasked"] != finished["test_result"] == finished["test_result_masked"]
    assert finished["best_valid_score"] == finished["best_valid_result"]["ndcg@20"]
    assert finished["best_valid_score"] == max(record["valid"]["ndcg@20"] for record in stored.history)
    assert finished["valid_score_bigger"] is True and finished["n_epochs"] == len(stored.history) == 2


def test_run_directory_tells_everything_about_the_run(finished: dict[str, Any], toy_path: Path) -> None:
    stored = read_run(finished["run_directory"])
    assert stored.path.parent.name == "cyclic" and stored.path.name.startswith("GRU4Rec-")
    assert stored.path.name.endswith("-s2020")
    assert stored.config["learning_rate"] == 0.001 and stored.config["epochs"] == 2
    assert stored.metrics["protocol"]["mask_history"] is True and stored.metrics["protocol"]["n_candidates"] == 40
    assert stored.metrics["splits"]["test"]["n_rows"] == 60 and stored.metrics["splits"]["test"]["seconds"] > 0
    assert stored.environment["seed"] == 2020 and stored.environment["peak_memory_mb"] > 50
    weights = stored.weights()
    assert stored.environment["n_parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert stored.dataset["n_items"] == 41 and stored.dataset["n_users"] == 61
    assert stored.dataset["mask_token"] is None
    assert "device: cpu (" in (stored.path / "run.log").read_text()
    assert len(stored.vocabulary.item_tokens) == 41 and stored.vocabulary.item_counts_all.sum() == len(toy.cyclic())
    origin = json.loads((stored.path / "origin.json").read_text())["origin"]
    assert origin["epochs"] == "dict" and origin["hidden_size"] == "model GRU4Rec.yaml"


def test_stored_histories_are_the_users_events_in_order(finished: dict[str, Any]) -> None:
    stored = read_run(finished["run_directory"])
    items, offsets = stored.histories
    vocabulary = stored.vocabulary
    expected: dict[str, list[str]] = {}
    for user, item, _ in sorted(toy.cyclic(), key=lambda event: event[2]):
        expected.setdefault(user, []).append(item)
    for index, user in enumerate(vocabulary.user_tokens[1:], start=1):
        told = [vocabulary.item_tokens[item] for item in items[offsets[index] : offsets[index + 1]]]
        assert told == expected[user]
    assert offsets[1] == 0 and offsets[-1] == len(items)


def test_complete_run_is_reused_and_overwrite_gives_the_same_numbers(toy_path: Path, tmp_path: Path) -> None:
    first = train(toy_path, tmp_path)
    path = Path(first["run_directory"])
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    again = train(toy_path, tmp_path)
    assert (first["reused"], again["reused"]) == (False, True)
    assert {**first, "reused": True} == again
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir()} == before
    anew = run("GRU4Rec", "cyclic", config_dict=settings(toy_path, tmp_path), overwrite=True)
    assert anew["reused"] is False and measured(anew) == measured(first)
    assert (path / "history.jsonl").stat().st_mtime_ns != before["history.jsonl"]


def test_a_complete_run_that_was_altered_is_not_reused(
    finished: dict[str, Any], toy_path: Path, tmp_path: Path
) -> None:
    shutil.copytree(Path(finished["run_directory"]).parents[1], tmp_path / "runs")
    file = next((tmp_path / "runs").rglob("metrics.json"))
    file.write_text(file.read_text().replace("0.", "0.9", 1))
    with pytest.raises(RunDirectoryError, match=r"metrics.json is damaged[^$]*--overwrite trains it again"):
        train(toy_path, tmp_path / "runs")


def test_an_unwritable_place_is_refused_before_the_data_is_read(
    toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recbole_prism.quick_start.create_dataset", lambda config: pytest.fail("the data was read"))
    (tmp_path / "a_file").write_text("")
    for place in (tmp_path / "a_file", tmp_path / "a_file" / "below"):
        with pytest.raises(RunDirectoryError, match="choose a writable --checkpoint_dir"):
            train(toy_path, place)


def test_a_tilde_is_the_home_folder(toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = run("GRU4Rec", "cyclic", config_dict={**settings(toy_path, tmp_path, epochs=1), "checkpoint_dir": "~/r"})
    assert Path(result["run_directory"]).parent == tmp_path / "r" / "cyclic"


def test_an_overwriting_run_that_fails_says_where_the_earlier_one_is(
    finished: dict[str, Any], toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    shutil.copytree(Path(finished["run_directory"]).parents[1], tmp_path / "runs")
    monkeypatch.setattr("recbole_prism.quick_start.Trainer", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("GRU4Rec", "cyclic", config_dict=settings(toy_path, tmp_path / "runs"), overwrite=True)
    kept = caplog.records[-1].getMessage().removeprefix("the earlier complete run is kept in ")
    assert read_run(kept).metrics["n_epochs"] == 2


def test_other_process_other_folder_same_numbers(toy_path: Path, tmp_path: Path, finished: dict[str, Any]) -> None:
    values = settings(toy_path, tmp_path / "runs")
    code = (
        f"import json, recbole_prism; print(json.dumps(recbole_prism.run('GRU4Rec', 'cyclic', config_dict={values!r})))"
    )
    result = json.loads(in_process(code, tmp_path))
    assert measured(result) == measured(finished)
    stored, other = read_run(finished["run_directory"]), read_run(result["run_directory"])
    assert [record["loss"] for record in stored.history] == [record["loss"] for record in other.history]
    for name, tensor in stored.weights().items():
        assert torch.equal(tensor, other.weights()[name])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["runs"]  # nothing lands in the working directory


def in_process(code: str, folder: Path) -> str:
    """Standard output of Python code that runs in a folder of its own, on one thread."""
    checkout = str(Path(recbole_prism.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loads_elsewhere_without_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    toy.write_all(data)
    result = train(data, tmp_path / "runs", "SASRec", "tok", topk=[5], valid_metric="NDCG@5")
    here = load(result["run_directory"], "cpu")
    moved = tmp_path / "elsewhere" / "my model"
    shutil.copytree(result["run_directory"], moved)
    shutil.rmtree(data)
    shutil.rmtree(tmp_path / "runs")
    history = [here.item_ids[token] for token in ("007", "item 3", "日本語")]
    code = f"""
import json, torch, recbole_prism
from recbole.data.interaction import Interaction
loaded = recbole_prism.load({str(moved)!r}, device="cpu")
history = [loaded.item_ids[token] for token in ("007", "item 3", "\\u65e5\\u672c\\u8a9e")]
batch = Interaction({{"item_id_list": torch.tensor([history]), "item_length": torch.tensor([3])}})
with torch.no_grad():
    print(json.dumps([loaded.item_tokens, loaded.model.training, loaded.model.full_sort_predict(batch).tolist()]))
"""
    tokens, training, scores = json.loads(in_process(code, tmp_path))
    assert sorted(tokens[1:]) == sorted(toy.TOKENS) and tokens[0] == "[PAD]" and training is False
    batch = {"item_id_list": torch.tensor([history]), "item_length": torch.tensor([3])}
    with torch.no_grad():
        assert here.model.full_sort_predict(batch).tolist() == scores
    moved_here = load(moved, "cpu")
    assert moved_here.metrics["splits"]["test"]["n_rows"] == 3 and len(moved_here.history) == 2
    assert here.info.n_items == 11 and here.config["hidden_size"] == 64


def test_damaged_or_unfinished_directory_is_refused(finished: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished["run_directory"], copy)
    (copy / "model.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="model.json"):
        load(copy, "cpu")
    (copy / "manifest.json").unlink()
    with pytest.raises(RunDirectoryError, match="no complete run"):
        load(copy, "cpu")


def test_without_saving_nothing_is_written_and_the_numbers_are_the_same(
    toy_path: Path, tmp_path: Path, finished: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("GRU4Rec", "cyclic", config_dict=settings(toy_path, tmp_path / "runs"), saved=False)
    assert measured(result) == measured(finished) and result["run_directory"] is None
    assert list(tmp_path.iterdir()) == []


def test_each_run_of_a_process_has_its_own_log_and_leaves_the_logger_alone(toy_path: Path, tmp_path: Path) -> None:
    logger = logging.getLogger("recbole_prism")
    before = (list(logger.handlers), logger.level)
    paths = [Path(train(toy_path, tmp_path, epochs=1, seed=seed)["run_directory"]) for seed in (1, 2)]
    assert (list(logger.handlers), logger.level) == before
    for seed, path in zip((1, 2), paths):
        text = (path / "run.log").read_text()
        assert f"seed: {seed} (dict)" in text and text.count("epoch 0 |") == 1 and "test, seen items removed" in text


def test_seeds_and_settings_have_directories_of_their_own(toy_path: Path, tmp_path: Path) -> None:
    results = [
        train(toy_path, tmp_path, epochs=1),
        train(toy_path, tmp_path, epochs=1, seed=3),
        train(toy_path, tmp_path, epochs=1, learning_rate=0.01),
    ]
    assert len({result["run_directory"] for result in results}) == 3
    assert len({result["best_valid_score"] for result in results}) == 3
    same = train(toy_path, tmp_path, epochs=1, show_progress=True, n_threads=1, eval_memory_gb=1.0)
    assert same["reused"] and same["run_directory"] == results[0]["run_directory"]


def test_targets_that_repeat_the_history_are_counted(toy_path: Path, tmp_path: Path) -> None:
    result = train(toy_path, tmp_path, dataset="repeats", topk=[5], valid_metric="NDCG@5", epochs=1)
    events: dict[str, list[str]] = {}
    for user, item, _ in toy.repeats():
        events.setdefault(user, []).append(item)
    repeated = sum(items[-1] in items[:-1] for items in events.values() if len(items) >= 3)
    test = read_run(result["run_directory"]).metrics["splits"]["test"]
    assert test["n_targets_in_history"] == repeated > 0
    assert test["masked"]["hit@5"] <= 1 - repeated / test["n_rows"]


def test_protocol_follows_mask_history(toy_path: Path, tmp_path: Path) -> None:
    result = train(toy_path, tmp_path, mask_history=False)
    assert result["test_result"] == result["test_result_unmasked"] != result["test_result_masked"]
    assert result["best_valid_score"] == result["best_valid_result"]["ndcg@20"]


def test_without_validation_rows_the_last_epoch_is_tested(toy_path: Path, tmp_path: Path) -> None:
    result = train(toy_path, tmp_path, eval_args={"split": {"LS": "test_only"}})
    assert result["best_valid_score"] is None and result["best_valid_result"] == {}
    assert result["epoch"] == 1 and result["test_result"]["hit@20"] > 0
    assert "no validation rows" in (Path(result["run_directory"]) / "run.log").read_text()


def test_topk_above_the_items_is_refused_before_training(toy_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="41"):
        train(toy_path, tmp_path, topk=[41], valid_metric="NDCG@41")
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_diverged_run_says_so_in_its_directory(toy_path: Path, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="loss part 'loss' is inf in epoch 1, batch 1"):
        train(toy_path, tmp_path, "tests.user_model:LastItem", explode_at=5)  # three batches per epoch
    status = json.loads(next(tmp_path.rglob("status.json")).read_text())
    assert status["state"] == "failed" and "NonFiniteError: loss part 'loss' is inf" in status["reason"]
    failure = json.loads(next(tmp_path.rglob("failure.json")).read_text())
    assert (failure["epoch"], failure["batch"], len(failure["row_ids"])) == (1, 1, 256)


def test_threads_are_set_for_the_run_only(toy_path: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    result = train(toy_path, tmp_path, "tests.user_model:LastItem", n_threads=before + 1, epochs=1)
    assert read_run(result["run_directory"]).environment["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_pre_split_files_train_and_keep_each_users_last_row(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "split"
    folder.mkdir(parents=True)
    rows = {
        "train": [("u1", "a b", "c"), ("u2", "b", "c"), ("u2", "b c", "d"), ("u3", "d", "a")],
        "valid": [("u1", "a b c", "d")],
        "test": [("u1", "a b c d", "a"), ("u2", "b c d", "a")],
    }
    for part, lines in rows.items():
        text = "user_id:token\titem_id_list:token_seq\titem_id:token\n"
        text += "".join(f"{user}\t{history}\t{target}\n" for user, history, target in lines)
        (folder / f"split.{part}.inter").write_text(text)
    columns = {"load_col": {"inter": ["user_id", "item_id_list", "item_id"]}, "topk": [2], "valid_metric": "NDCG@2"}
    files = {"benchmark_filename": ["train", "valid", "test"]}
    result = train(tmp_path / "data", tmp_path / "runs", dataset="split", **columns, **files)
    stored = read_run(result["run_directory"])
    items, offsets = stored.histories
    told = {
        user: " ".join(stored.vocabulary.item_tokens[item] for item in items[offsets[index] : offsets[index + 1]])
        for index, user in enumerate(stored.vocabulary.user_tokens)
    }
    assert told == {"[PAD]": "", "u1": "a b c d a", "u2": "b c d a", "u3": "d a"}
    assert stored.metrics["splits"]["test"]["n_targets_in_history"] == 1  # u1 meets a again


SESSION_MODEL = """
import json, torch
from recbole.model.abstract_recommender import SequentialRecommender
from torch import nn
from torch.nn import functional as F
import recbole_prism

class Mine(SequentialRecommender):
    config_defaults = {"width": 8}

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.table = nn.Embedding(self.n_items, config["width"])

    def full_sort_predict(self, interaction):
        last = interaction[self.ITEM_SEQ].gather(1, interaction[self.ITEM_SEQ_LEN].unsqueeze(1) - 1).squeeze(1)
        return self.table(last) @ self.table.weight.T

    def calculate_loss(self, interaction):
        return F.cross_entropy(self.full_sort_predict(interaction), interaction[self.ITEM_ID])
"""


def test_class_typed_into_a_session_trains_and_says_why_others_cannot_load_it(toy_path: Path, tmp_path: Path) -> None:
    values = settings(toy_path, tmp_path / "runs", epochs=1)
    code = f"""{SESSION_MODEL}
result = recbole_prism.run(Mine, "cyclic", config_dict={values!r})
again = recbole_prism.run(Mine, "cyclic", config_dict={values!r})
loaded = recbole_prism.load(result["run_directory"], "cpu")
print(json.dumps([result["run_directory"], again["reused"], type(loaded.model).__name__]))
"""
    path, reused, name = json.loads(in_process(code, tmp_path))
    assert (reused, name) == (True, "Mine")
    with pytest.raises(ModelError, match="class Mine was defined in a notebook") as caught:
        load(path, "cpu")
    assert "--model=my_file:Mine" in caught.value.cure


def test_class_defined_in_a_function_trains_and_says_why_it_cannot_be_loaded(toy_path: Path, tmp_path: Path) -> None:
    class Local(LastItem):
        pass

    result = run(Local, "cyclic", config_dict=settings(toy_path, tmp_path, epochs=1))
    with pytest.raises(ModelError, match="was defined inside a function"):
        load(result["run_directory"], "cpu")


STOCK_FAILURES: list[tuple[str, dict[str, Any], str]] = [
    ("KSR", {"additional_feat_suffix": ["ent"]}, "cannot read its data: ValueError: Additional feature file"),
    ("SASRecF", {}, "cannot be built: KeyError: 'class'"),
]
if importlib.util.find_spec("recbole.model.sequential_recommender.sasreccpr"):  # recbole 1.2.1 on
    # it wants the best 100 of 40 items
    STOCK_FAILURES.append(("SASRecCPR", {}, "cannot be trained: RuntimeError: selected index k out of range"))


@pytest.mark.parametrize(("model", "changes", "message"), STOCK_FAILURES)
def test_stock_model_that_needs_more_data_says_so(
    toy_path: Path, tmp_path: Path, model: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=f"RecBole's own class {model} {message}") as caught:
        train(toy_path, tmp_path, f"recbole:{model}", epochs=1, **changes)
    assert "item features" in caught.value.cure and caught.value.__cause__ is not None


def test_stock_model_that_cannot_be_built_without_its_data_says_so(toy_path: Path, tmp_path: Path) -> None:
    result = train(toy_path, tmp_path, "recbole:CORE", epochs=1)
    with pytest.raises(ModelError, match="CORE cannot be built without its data: .*field2seqlen[^$]*where the data is"):
        load(result["run_directory"], "cpu")


def test_errors_of_other_models_are_their_authors_to_see(toy_path: Path, tmp_path: Path) -> None:
    class Broken(LastItem):
        def calculate_loss(self, interaction: Any) -> torch.Tensor:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(Broken, "cyclic", config_dict=settings(toy_path, tmp_path, epochs=1))


def test_models_that_cannot_be_trained_are_named(toy_path: Path, tmp_path: Path) -> None:
    class Frozen(LastItem):
        def __init__(self, config: Any, dataset: Any) -> None:
            super().__init__(config, dataset)
            self.requires_grad_(False)

    class PerRow(LastItem):
        def calculate_loss(self, interaction: Any) -> Any:
            return self.full_sort_predict(interaction).sum(dim=1)

    for model, problem in ((Frozen, "Frozen has no parameters"), (PerRow, r"PerRow returned a tensor of shape \(\d+,")):
        with pytest.raises(ModelError, match=problem):
            run(model, "cyclic", config_dict=settings(toy_path, tmp_path, epochs=1))


def test_loader_workers_change_no_number(toy_path: Path, tmp_path: Path) -> None:
    results = [train(toy_path, tmp_path / str(worker), "PRISM", worker=worker) for worker in (0, 2)]
    assert measured(results[0]) == measured(results[1])
    histories = [read_run(result["run_directory"]).history for result in results]
    for key in ("loss", "valid", "scalars", "rows"):
        assert [record[key] for record in histories[0]] == [record[key] for record in histories[1]]


@pytest.mark.slow
def test_stock_recbole_gives_the_same_numbers_with_this_package_imported(toy_path: Path, tmp_path: Path) -> None:
    """Only its NumPy names are given to it by hand: without them RecBole 1.2 does not run on NumPy 2 at all."""
    values = {
        "data_path": str(toy_path),
        "checkpoint_dir": str(tmp_path / "saved"),
        "use_gpu": False,
        "epochs": 1,
        "train_neg_sample_args": None,
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "full", "group_by": "user"},
        "metric_decimal_place": 12,
        "show_progress": False,
    }
    code = f"""
import json
import numpy as np
for name, value in (("float_", np.float64), ("complex_", np.complex128), ("unicode_", np.str_)):
    if not hasattr(np, name):
        setattr(np, name, value)
IMPORT
import recbole
from recbole.quick_start import run_recbole
result = run_recbole("SASRec", "cyclic", config_dict={values!r}, saved=False)
print(json.dumps([recbole.__file__, result["best_valid_result"], result["test_result"]]))
"""
    alone, beside = (
        json.loads(in_process(code.replace("IMPORT", text), tmp_path).splitlines()[-1])
        for text in ("", "import recbole_prism")
    )
    assert alone == beside and alone[2]["ndcg@10"] > 0

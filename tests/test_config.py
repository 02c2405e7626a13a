"""Config: every key checked before data is read, and nothing outside the Config touched."""

from __future__ import annotations

import copy
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.sequential_recommender import NARM, GRU4Rec
from recbole.utils import argument_list

from recbole_prism.config import Config, check_topk
from recbole_prism.errors import ConfigError, DataError, ModelError
from recbole_prism.schema import RECBOLE_KEYS, SCHEMA
from recbole_prism.settings_files import SettingsLoader, load_yaml, parse_value, properties_folder, recipe_path

MODEL_FILES = sorted((properties_folder() / "model").glob("*.yaml"))


class Own(SequentialRecommender):
    """A user's model: three settings, no RecBole file."""

    config_defaults = {"width": 8, "rate": 0.5, "gates": [1, 2]}


class Boasting(SequentialRecommender):
    """Breaks the contract: its properties are a dict."""

    config_defaults: dict[str, Any] = {}

    @classmethod
    def declared_properties(cls, config: Any) -> Any:
        return {"causal": True}


class Undeclared(SequentialRecommender):
    """Breaks the contract: no config_defaults."""


def make(model: Any = "PRISM", dataset: str = "ml-100k", files: Any = None, command_line: Any = None, **settings: Any):
    return Config(model, dataset, files, settings, command_line)


def message(error: type[Exception], *args: Any, **settings: Any) -> str:
    with pytest.raises(error) as caught:
        make(*args, **settings)
    return str(caught.value)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


# properties


@pytest.mark.parametrize("path", [properties_folder() / "overall.yaml", *MODEL_FILES], ids=lambda path: path.stem)
def test_every_key_has_a_comment_and_a_schema_entry_that_its_default_keeps(path: Path) -> None:
    for key, value in load_yaml(path).items():
        assert re.search(rf"^{key}:.*# ", path.read_text(encoding="utf-8"), re.M), f"{key} has no comment"
        known = SCHEMA.get(key) or RECBOLE_KEYS[key]
        assert known.problem(value) is None, key
        if key in SCHEMA:
            assert known.meaning and known.room


def test_every_schema_key_has_its_default_in_properties() -> None:
    given = {key for path in [properties_folder() / "overall.yaml", *MODEL_FILES] for key in load_yaml(path)}
    assert set(SCHEMA) <= given


@pytest.mark.parametrize("key", sorted(SCHEMA))
def test_every_key_of_the_package_refuses_a_wrong_type_with_name_value_and_place(key: str) -> None:
    model = next((path.stem for path in MODEL_FILES if key in load_yaml(path)), "PRISM")
    text = message(ConfigError, model, **{key: {"no": "such"}})
    assert key in text and "{'no': 'such'}" in text and "from dict" in text


@pytest.mark.parametrize("path", [path for path in MODEL_FILES if load_yaml(path)], ids=lambda path: path.stem)
def test_no_key_of_a_model_may_be_missing(path: Path) -> None:
    """None, which RecBole takes for "off" or passes on, is refused; the last key as an example of a whole config."""
    *_, last = keys = list(load_yaml(path))
    assert all((SCHEMA.get(key) or RECBOLE_KEYS[key]).problem(None) for key in keys)
    assert f"{last} is None" in message(ConfigError, path.stem, **{last: None})


@pytest.mark.parametrize(
    "key", sorted(key for key, entry in SCHEMA.items() if entry.choices and key in load_yaml(MODEL_FILES[-2]))
)
def test_every_choice_of_a_listed_key_is_accepted(key: str) -> None:
    for choice in SCHEMA[key].choices:
        assert make("PRISM", **{key: choice})[key] == choice


@pytest.mark.parametrize("model", ["PRISM", "SASRec", "GRU4Rec", "BERT4Rec", "NARM", "Caser", "recbole:FPMC"])
def test_model_and_dataset_alone_are_enough(model: str) -> None:  # C9
    config = make(model)
    assert config["valid_metric"] == "NDCG@20" and config["topk"] == [5, 10, 20] and config["epochs"] == 300
    assert config["train_batch_size"] == 256 and config["learning_rate"] == 1e-3 and config["mask_history"] is True
    assert config["eval_args"] == {
        "split": {"LS": "valid_and_test"},
        "order": "TO",
        "group_by": "user",
        "mode": {"valid": "full", "test": "full"},
    }


@pytest.mark.parametrize("path", sorted((properties_folder() / "dataset").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_data_set_file_is_valid(path: Path) -> None:
    config = Config("PRISM", path.stem, require_data=False)
    assert "source" not in config and "source" not in config.resolved()
    assert set(load_yaml(path)) <= {"source", *config.resolved()}


def test_common_protocol_of_the_transformers() -> None:
    for model in ("SASRec", "PRISM"):
        config = make(model)
        sizes = [config[key] for key in ("n_layers", "n_heads", "hidden_size", "inner_size", "MAX_ITEM_LIST_LENGTH")]
        assert sizes == [2, 2, 64, 256, 50] and config["hidden_dropout_prob"] == config["attn_dropout_prob"] == 0.5


def test_quick_recipe_is_valid_for_its_model() -> None:
    path = recipe_path("ml-100k", "PRISM")
    config = make("PRISM", files=[str(path)])
    assert (
        config["MAX_ITEM_LIST_LENGTH"] == load_yaml(path)["MAX_ITEM_LIST_LENGTH"] < 50
        and config.origin["epochs"] == "recipe ml-100k/PRISM.yaml"
    )


# merge and origin


def test_merge_order_and_origin(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", "seed: 1\nepochs: 1\nn_lenses: 2\nstopping_step: 1\n")
    second = write(tmp_path / "second.yaml", "seed: 2\nepochs: 2\nn_lenses: 6\n")
    config = make("PRISM", files=[first, second], command_line={"seed": 4}, seed=3, epochs=3)
    assert [config[key] for key in ("seed", "epochs", "n_lenses", "stopping_step")] == [4, 3, 6, 1]
    expected = {
        "seed": "command line",
        "epochs": "dict",
        "n_lenses": f"file {second}",
        "stopping_step": f"file {first}",
        "aux_weight": "model PRISM.yaml",
        "learner": "default",
        "model": "argument",
    }
    assert {key: config.origin[key] for key in expected} == expected
    assert config.changes()["seed"] == (4, "command line") and "learner" not in config.changes()


def test_model_and_dataset_may_come_from_anywhere(tmp_path: Path) -> None:
    config = Config(
        config_file_list=[write(tmp_path / "a.yaml", "model: sasrec\n")], command_line={"dataset": "ml-100k"}
    )
    assert (config["model"], config["dataset"]) == ("SASRec", "ml-100k")
    with pytest.raises(ConfigError, match="no model is named"):
        Config(dataset="ml-100k")


def test_eval_args_are_merged_part_by_part() -> None:  # C3
    config = make(command_line={"eval_args": {"mode": {"valid": "full"}}}, eval_args={"split": {"LS": "valid_only"}})
    assert config["eval_args"]["order"] == "TO" and config["eval_args"]["split"] == {"LS": "valid_only"}
    assert config["eval_args"]["mode"] == {"valid": "full", "test": "full"}
    assert "did you mean order?" in message(ConfigError, eval_args={"ordr": "TO"})


def test_resolved_is_plain_and_gives_the_same_config_again() -> None:
    for model in ("PRISM", "BERT4Rec", "recbole:FPMC", f"{__name__}:Own"):
        config = make(model, eval_args={"order": "TO"}, topk=10, valid_metric="ndcg@10", metrics="NDCG", device="cpu")
        again = Config(config_dict=config.resolved())
        assert again.resolved() == config.resolved()
        assert yaml.safe_load(yaml.safe_dump(config.resolved())) == config.resolved()
        assert config.resolved()["model"] == model and config.resolved()["device"] == "cpu"


def test_identity_ignores_the_machine_and_the_seed_and_nothing_else() -> None:
    base = make("PRISM", device="cpu").identity_values()
    same = {
        "worker": 2,
        "seed": 7,
        "checkpoint_dir": "x",
        "show_progress": False,
        "eval_memory_gb": 1.0,
        "n_threads": 1,
    }
    assert make("PRISM", device="cpu", **same).identity_values() == base
    for changed in ({"epochs": 1}, {"n_lenses": 6}, {"mask_history": False}, {"fast_path": False}):
        assert make("PRISM", device="cpu", **changed).identity_values() != base


# refusals


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hiden_size": 128}, "did you mean hidden_size"),  # C2
        ({"learning-rate": 0.1}, "did you mean learning_rate"),
        ({"checkpoint_dir": 5}, "expected text"),
        ({"epochs": 10.0}, "write 10"),  # C5
        ({"epochs": "5"}, "expected a whole number from 1 up"),
        ({"epochs": True}, "epochs is True (bool)"),
        ({"show_progress": "yes"}, "write True"),
        ({"topk": "5,10"}, "write [5,10]"),
        ({"topk": [5, 0]}, "topk is [5, 0]"),
        ({"topk": []}, "topk is []"),
        ({"learning_rate": -1e-3}, "above 0"),
        ({"learning_rate": float("nan")}, "above 0"),
        ({"hidden_dropout_prob": 1.0}, "below 1"),
        ({"n_lenses": 1}, "from 2 up"),
        ({"cl_similarity": "cosin"}, "one of cosine, dot"),
        ({"valid_metric": "MRR@10"}, "one of Hit@5"),  # C11
        ({"valid_metric": "NDCG@50"}, "NDCG@20"),
        ({"metrics": ["Hit", "NDGC"]}, "did you mean NDCG"),
        ({"metrics": ["AUC"]}, "supported: Hit, Recall"),
        ({"metrics": ["NDCG", "ItemCoverage"], "topk": [20, 50]}, "20 stored items"),
        ({"eval_args": {"mode": "uni100"}}, "ranks all items"),
        ({"eval_args": {"mode": {"test": "pop100"}}}, "pop100"),
        ({"eval_args": {"order": "RO"}}, "order: TO"),
        ({"eval_args": {"split": {"LS": "last"}}}, "valid_and_test"),
        ({"repeatable": False}, "repeatable"),  # C13
        ({"loss_type": "BPR"}, "one of CE"),
        ({"train_neg_sample_args": {"distribution": "uniform", "sample_num": 1}}, "no negatives"),
        ({"use_gpu": False}, "set device"),
        ({"gpu_id": "1"}, "set device"),
        ({"device": "gpu"}, "cuda:N"),
        ({"device": "cuda:99"}, "device=auto"),
        ({"nproc": 2}, "one process"),
        ({"enable_amp": True}, "float32"),
        ({"transform": "crop_itemseq"}, "brings its own"),
        ({"save_dataset": True}, "no cache"),
        ({"log_wandb": True}, "history.jsonl"),
        ({"hidden_size": 65}, "n_heads"),
        ({"learner": "sparse_adam"}, "one of adam, adamw"),
        ({"eval_args": {"split": {"RS": "abc"}}}, "{RS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"RS": [0.9, 0.1]}}}, "{RS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"RS": [0.0, 0.0, 0.0]}}}, "{RS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"TS": [1, -1, 1]}}}, "{TS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"TS": [True, 1, 1]}}}, "{TS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"group_by": "none"}}, "would do nothing for split LS"),
        ({"clip_grad_norm": {"max_nrom": 5}}, "clip_grad_norm.max_nrom (from dict)\n  -> did you mean max_norm?"),
        ({"clip_grad_norm": {"norm_type": 2}}, "{max_norm: 5}"),
        ({"clip_grad_norm": {}}, "{max_norm: 5}"),
        ({"clip_grad_norm": {"max_norm": 0}}, "above 0"),
        ({"rm_dup_inter": "frist"}, "one of first, last or ~"),
        ({"user_inter_num_interval": "5"}, "[5,inf)"),
        ({"user_inter_num_interval": [5, 10]}, "write '[5, 10]', in quotes"),
        ({"item_inter_num_interval": "[5,x)"}, "(from dict)"),
        ({"item_inter_num_interval": "[9,5]"}, "(from dict)"),
        ({"encoding": "utf-9"}, "utf-8"),
        ({"cl_temperature": float("inf")}, "at most 1e+06"),
        ({"aux_weight": float("inf")}, "at most 1e+06"),
        ({"weight_decay": 1e30}, "at most 100"),
        ({"learning_rate": 1e30}, "at most 100"),
        ({"layer_norm_eps": 1e30}, "at most 1 "),
        ({"eval_memory_gb": float("inf")}, "the default is eval_memory_gb: 4.0"),
        ({"n_threads": 1_000_000}, "at most 1024"),
        ({"worker": 1000}, "at most 64"),
        ({"learning_rate": "abc"}, "\n  -> the default is learning_rate: 0.001"),
        ({"learning_rate": "1e-3"}, "write 0.001, a number without quotes"),
        ({"metrics": "Hit,NDCG"}, "write [Hit,NDCG]"),
        ({"topk": 1000}, "topk 1000 (from dict)\n  -> set valid_metric too, to one of Hit@1000, NDCG@1000"),
        ({"clip_grad_norm": {"max_norm": -5}}, "{max_norm: 5}"),
        ({"eval_args": {1: 2}}, "unknown key eval_args.1"),
        ({"eval_args": {"mode": {1: 2}}}, "unknown key eval_args.mode.1"),
        ({"load_col": {1: ["a"]}}, "unknown file suffix 1"),
        ({"eval_args": {"split": {"RS": 5}}}, "{RS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"RS": float("nan")}}}, "{RS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"TS": [1, 0, float("inf")]}}}, "{TS: [0.8, 0.1, 0.1]}"),
        ({"eval_args": {"split": {"TS": [1e308, 1e308, 1e308]}}}, "{TS: [0.8, 0.1, 0.1]}"),
        ({"encoding": "base64"}, "utf-8"),
        ({"encoding": "utf-8\0"}, "utf-8"),
        ({"tail_ratio": 0}, "above 0"),
        ({"load_col": {"intr": ["user_id"]}}, "did you mean inter?"),
        ({"load_col": {"inter": "user_id"}}, "{inter: [user_id]}"),
        ({"unload_col": {"inter": ["rating"]}}, "load_col: ~"),
        ({"n_layers": 1}, "at least 2"),
        ({"seed": object()}, "settings are numbers"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused_before_data_is_read(settings: dict[str, Any], words: str) -> None:
    assert words in message(ConfigError, "PRISM", **settings)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("RATING_FIELD", "stars"),
        ("POSITION_FIELD", "place"),
        ("require_pow", True),
        ("NEG_PREFIX", "no_"),
        ("LABEL_FIELD", "liked"),
        ("threshold", {"rating": 3}),
        ("normalize_all", True),
        ("normalize_field", ["timestamp"]),
        ("numerical_features", ["timestamp"]),
        ("discretization", {"timestamp": {"method": "LD"}}),
        ("preload_weight", {"item_id": "vector"}),
        ("additional_feat_suffix", ["vectors"]),
        ("seq_len", {"words": 5}),
        ("HEAD_ENTITY_ID_FIELD", "head"),
        ("TAIL_ENTITY_ID_FIELD", "tail"),
        ("RELATION_ID_FIELD", "relation"),
        ("ENTITY_ID_FIELD", "entity"),
        ("alias_of_entity_id", ["head"]),
        ("alias_of_relation_id", ["relation"]),
        ("kg_reverse_r", True),
        ("entity_kg_num_interval", "[2,inf)"),
        ("relation_kg_num_interval", "[2,inf)"),
    ],
)
def test_a_key_that_would_do_nothing_is_refused_by_name(key: str, value: Any) -> None:
    assert f"{key} = {value!r} would do nothing for PRISM (from dict)" in message(ConfigError, "PRISM", **{key: value})
    make("PRISM", **{key: make("PRISM")[key]})  # its default is none of its business
    if key not in ("RATING_FIELD", "POSITION_FIELD", "require_pow"):
        assert make("recbole:SASRec", **{key: value})[key] == value  # RecBole's own data path reads it


def test_filters_would_do_nothing_to_pre_split_files() -> None:
    for key, value in (("rm_dup_inter", "last"), ("item_inter_num_interval", "[5,inf)")):
        text = message(ConfigError, benchmark_filename=["train", "valid", "test"], **{key: value})
        assert key in text and "benchmark_filename" in text


def test_forms_that_recbole_reads_are_accepted() -> None:
    for interval in ("[5,inf)", "(0, 1];[3,4)", "[-inf,2.5]", None):
        assert make(user_inter_num_interval=interval)["user_inter_num_interval"] == interval
    for split in ({"RS": [0.8, 0.1, 0.1]}, {"TS": [8, 1, 1]}, {"RS": [1, 0, 1]}):
        assert make(eval_args={"split": split})["eval_args"]["split"] == split
    make(eval_args={"split": {"RS": [8, 1, 1]}, "group_by": "none"}, encoding="latin-1", rm_dup_inter="last")
    make(clip_grad_norm={"max_norm": 5, "norm_type": float("inf"), "error_if_nonfinite": True, "foreach": None})


def test_harmless_spellings_of_the_defaults_are_accepted() -> None:
    make("PRISM", gpu_id=0, use_gpu=True, nproc=1, repeatable=True, save_dataset=False, learning_rate=1)
    config = make("PRISM", valid_metric="ndcg@20", seed=np.int64(3), train_neg_sample_args={"distribution": "none"})
    assert config["seed"] == 3 and type(config["seed"]) is int


def test_a_key_of_another_model_is_named_as_such() -> None:
    assert "n_lenses is not a setting of GRU4Rec" in message(ConfigError, "GRU4Rec", n_lenses=4)


def test_pairwise_models_only_on_the_stock_path() -> None:
    assert make("recbole:GRU4Rec", loss_type="BPR")["train_neg_sample_args"]["distribution"] == "uniform"
    assert make("recbole:GRU4Rec")["train_neg_sample_args"]["distribution"] == "none"
    assert "write train_neg_sample_args: ~" in message(
        ConfigError, "recbole:GRU4Rec", train_neg_sample_args={"distribution": "uniform"}
    )


def test_check_topk() -> None:  # C12
    config = make()
    check_topk(config, 20)
    with pytest.raises(ConfigError, match="topk 20 is above the 19 items"):
        check_topk(config, 19)


# models


def test_model_names_in_any_spelling_and_classes() -> None:  # C7
    assert make("sasrec").model_class.__module__ == "recbole_prism.model.sequential_recommender.sasrec"
    assert make("recbole:sasrec").model_class.__module__ == "recbole.model.sequential_recommender.sasrec"
    assert make(NARM).model_entry.origin == "recbole" and make(GRU4Rec).model_entry.origin == "stock"
    assert "did you mean SASRec" in message(ModelError, "SASRecc")  # C8


def test_a_class_of_ones_own_brings_its_keys() -> None:
    for model in (Own, f"{__name__}:Own"):
        config = make(model, width=16, rate=1)
        assert (config["model"], config["width"], config["rate"], config["gates"]) == ("Own", 16, 1, [1, 2])
        assert config.origin["gates"] == "model Own" and config.properties.fixed_width
    assert "width is 'wide'" in message(ConfigError, Own, width="wide")
    assert "did you mean width" in message(ConfigError, Own, widht=4)
    assert "config_defaults" in message(ModelError, Undeclared)
    assert "registry.ModelProperties" in message(ModelError, Boasting)


def test_one_more_file_suffix_may_be_text() -> None:
    for model in ("recbole:KSR", "recbole:GRU4RecKG"):  # RecBole's files write it so
        assert make(model)["additional_feat_suffix"] == ["ent"]


# data sets


def test_unknown_dataset(tmp_path: Path) -> None:
    (tmp_path / "toy-one").mkdir()
    write(tmp_path / "toy-one" / "toy-one.inter", "")
    (tmp_path / "empty").mkdir()
    assert make(dataset="toy-one", data_path=str(tmp_path))["data_path"] == str(tmp_path / "toy-one")
    assert "did you mean toy-one?" in message(DataError, dataset="toy_on", data_path=str(tmp_path))
    assert "empty.inter" in message(DataError, dataset="empty", data_path=str(tmp_path))
    assert "recbole-prism prepare amazon-toys" in message(DataError, dataset="amazon-toys", data_path=str(tmp_path))
    assert "did you mean amazon-toys?" in message(DataError, dataset="amazon-toy", data_path=str(tmp_path))
    Config("PRISM", "toy_on", require_data=False)


@pytest.mark.parametrize("name", ["../toy", "a/b", "a\\b", "/tmp", "..", "", "a\0b"])
def test_a_path_is_no_name(name: str) -> None:
    assert "data_path is the folder" in message(ConfigError, dataset=name)
    with pytest.raises(ConfigError, match="write the name alone"):
        recipe_path("ml-100k", name)


def test_pre_split_files_must_all_be_there(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts" / "parts.train.inter", "")
    text = message(DataError, dataset="parts", data_path=str(tmp_path), benchmark_filename=["train", "valid", "test"])
    assert "parts.valid.inter" in text


# columns


def test_default_columns_are_loaded_under_the_names_they_have() -> None:
    names = {"USER_ID_FIELD": "uid", "ITEM_ID_FIELD": "asin", "TIME_FIELD": "when"}

    def own(**settings: Any) -> Config:
        return Config("recbole:SASRec", "own", config_dict={**names, **settings}, require_data=False)

    assert own()["load_col"] == {"inter": ["uid", "asin", "when"]} and own().origin["load_col"] == "default"
    given = {"inter": ["uid", "asin", "when", "stars"]}
    assert own(load_col=given)["load_col"] == given
    with pytest.raises(ConfigError, match=r"(?s)leaves out uid, .*\[uid, asin, when\]"):
        own(load_col={"inter": ["asin", "when"]})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"load_col": {"inter": ["user_id", "item_id", "timestmp"]}}, "did you mean timestamp?"),
        ({"load_col": {"inter": ["user_id"], "item": ["item_id", "movie_titel"]}}, "did you mean movie_title?"),
        ({"val_interval": {"rating": "[3,inf)"}}, "load_col: {inter: [..., rating]}"),
        ({"val_interval": {"ratings": "[3,inf)"}}, "did you mean rating?"),
        ({"load_col": {"inter": "*"}, "val_interval": {"rating": "3"}}, "rating holds numbers"),
        ({"load_col": {"item": ["class"]}, "val_interval": {"item_id": "5"}}, "item_id holds tokens"),
        ({"val_interval": {"timestamp": "abc"}}, '"[5,inf)"'),
        ({"val_interval": {1: "[5,inf)"}}, "the column 1, which is not loaded"),
    ],
)
def test_columns_are_checked_against_the_headers(settings: dict[str, Any], words: str) -> None:
    assert words in message((ConfigError, DataError), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"ITEM_LIST_LENGTH_FIELD": "item_id"},
        {"ITEM_LIST_LENGTH_FIELD": "user_id"},
        {"ITEM_LIST_LENGTH_FIELD": "row_id"},
        {"ITEM_LIST_LENGTH_FIELD": "timestamp_list"},
        {"LIST_SUFFIX": ""},
        {"USER_ID_FIELD": "item_id"},
        {"TIME_FIELD": "item_id_list"},
        {"USER_ID_FIELD": "partner_item_id_list"},
    ],
    ids=str,
)
def test_no_part_of_a_batch_takes_the_name_of_another(settings: dict[str, str]) -> None:
    (key,) = settings
    text = message(ConfigError, "recbole:SASRec", **settings)
    assert "two parts of a batch have the name" in text and f"{key} from dict" in text


def test_right_columns_are_accepted() -> None:
    make(load_col={"inter": "*"}, val_interval={"rating": "[3,inf)", "timestamp": [0, 9e8]})
    make(load_col={"inter": ["rating"], "item": ["item_id", "class"]}, val_interval={"item_id": ["5", "7"]})
    assert make(load_col=None, unload_col={"inter": ["rating"]})["load_col"] is None


def test_header_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.inter").write_bytes("user_id:token\titem_id:token\tgröße:float\n".encode("latin-1"))
    settings = {"data_path": str(tmp_path), "load_col": {"inter": ["größe"]}}
    assert "--encoding=latin-1" in message(DataError, dataset="toy", encoding="utf-8", **settings)
    make(dataset="toy", encoding="latin-1", **settings)


# settings files and values


def test_values_are_yaml_and_never_evaluated() -> None:  # C4, C5, C10
    texts = ["1e-3", "5", "1e1", "True", "~", "None", "[5,10]", "{mode: full}", "1/0", "os.foo", "1_000", "0x10", "yes"]
    values = [1e-3, 5, 10.0, True, None, None, [5, 10], {"mode": "full"}, "1/0", "os.foo", "1_000", "0x10", "yes"]
    assert [parse_value(text) for text in texts] == values
    with pytest.raises(ConfigError, match="cannot read"):
        parse_value("[5")


def test_settings_files_say_what_is_wrong(tmp_path: Path) -> None:
    for text, words in [("a: 1\na: 2", "twice"), ("- a", "does not hold settings"), ("a: [", "line 1")]:
        with pytest.raises(ConfigError, match=words):
            load_yaml(Path(write(tmp_path / "x.yaml", text)))
    assert "no settings file" in message(ConfigError, files=[str(tmp_path / "none.yaml")])
    assert load_yaml(Path(write(tmp_path / "empty.yaml", "# nothing"))) == {}
    texts = {
        "a: !!int abc": "x.yaml cannot be read as YAML: 'abc' is not of the kind int .line 1",
        "a: !!float abc": "kind float",
        "a: !!bool maybe": "kind bool",
        f"a: {'9' * 5000}": "kind int",
        "a: !!map 5": "expected a mapping",
        "a: !!set {b}": "set",
        "a: &b [*b]": "recursive",
        "a: " + "[" * 3000: "recursion",
        "b: &b {c: 1}\na:\n  <<: *b": "merge key << is not supported",
    }
    for text, words in texts.items():
        with pytest.raises(ConfigError, match=words):
            load_yaml(Path(write(tmp_path / "x.yaml", text)))
        if words.startswith(("kind", "rec")):
            with pytest.raises(ConfigError, match="cannot read the value"):
                parse_value(text[3:])


def test_arguments_of_another_kind(tmp_path: Path) -> None:
    for files in ("x.yaml", 3, [3]):
        with pytest.raises(ConfigError, match="give a list"):
            Config("PRISM", "ml-100k", files)  # type: ignore[arg-type]
    for values in ([1], "epochs", 5):
        with pytest.raises(ConfigError, match="config_dict is .*expected a mapping"):
            Config("PRISM", "ml-100k", None, values)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown key 1 "):
        Config("PRISM", "ml-100k", None, {1: 2})  # type: ignore[dict-item]
    config = Config("PRISM", "ml-100k", [Path(write(tmp_path / "x.yaml", "seed: 1"))], {"checkpoint_dir": tmp_path})  # type: ignore[list-item]
    assert config.resolved()["checkpoint_dir"] == str(tmp_path)


# nothing outside is touched


def test_process_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:  # C1, C14, C15
    monkeypatch.setattr(sys, "argv", ["service", "--port=8000", "--epochs=7", "--tb=short", "--seed=1/0"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    environment, lists = dict(os.environ), copy.deepcopy(vars(argument_list).copy().get("dataset_arguments"))
    resolvers = copy.copy(yaml.FullLoader.yaml_implicit_resolvers)
    config = make("SASRec")
    assert config["epochs"] == 300 and "tb" not in config
    assert dict(os.environ) == environment
    assert argument_list.dataset_arguments == lists
    assert yaml.FullLoader.yaml_implicit_resolvers == resolvers
    assert "yaml_implicit_resolvers" in vars(SettingsLoader) and yaml.safe_load("on: 1e-3") == {True: "1e-3"}


def test_two_configs_do_not_influence_each_other() -> None:
    settings = {"eval_args": {"split": {"LS": "valid_only"}}, "topk": [20], "metrics": ["NDCG"]}
    given = copy.deepcopy(settings)
    first = Config("PRISM", "ml-100k", config_dict=settings)
    first["eval_args"]["split"]["LS"] = "test_only"
    first["topk"].append(99)
    first.parameters["General"].append("mine")
    second = make("BERT4Rec")
    assert settings == given
    assert second["eval_args"]["split"] == {"LS": "valid_and_test"} and second["topk"] == [5, 10, 20]
    assert "mine" not in second.parameters["General"]


def test_device_is_a_torch_device_and_config_can_be_pickled() -> None:
    config = make("PRISM", device="cpu")
    assert config["device"] == torch.device("cpu")
    assert pickle.loads(pickle.dumps(config)).resolved() == config.resolved()

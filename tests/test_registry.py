"""Model names, classes and declared properties."""

from __future__ import annotations

import sys
import types
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.sequential_recommender import FPMC, NARM

from recbole_prism import registry
from recbole_prism.errors import ModelError
from recbole_prism.registry import ModelProperties, entry_of, list_models, load_class, resolve

LISTED = (
    "PRISM",
    "SASRec",
    "GRU4Rec",
    "BERT4Rec",
    "CL4SRec",
    "DuoRec",
    "ACSASRec",
    "FAME",
    "ICLRec",
    "IOCRec",
    "ELCRec",
    "ICSRec",
    "FamouSRec",
    "STARRec",
    "NARM",
    "Caser",
    "Popularity",
    "Markov",
)


class Declaring(SequentialRecommender):
    """A user's model that declares a property under one of its settings."""

    config_defaults = {"short": True}

    @classmethod
    def declared_properties(cls, config: Any) -> ModelProperties:
        return ModelProperties(causal=True, fixed_width=not config["short"])


def test_listed_models_load_under_any_spelling() -> None:
    assert list_models()[: len(LISTED)] == LISTED
    for name in LISTED:
        entry = resolve(name)
        assert resolve(name.lower()) is entry and resolve(name.upper()) is entry
        assert load_class(entry).__name__ == name == entry.name == entry.spec
        assert issubclass(load_class(entry), SequentialRecommender)
        assert entry_of(load_class(entry)) is entry
    assert resolve("sas-rec").name == "SASRec"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SASRecc", "did you mean SASRec"),
        ("PRIMS", "did you mean PRISM"),
        ("fpmc", "recbole:FPMC"),
        ("xyz", "one of PRISM"),
        ("recbole:FPMCC", "did you mean recbole:FPMC"),
        *((name, "write --model=my.module:MyModel") for name in (":A", ".x:A", "my_models:", "a/b:C", "os:A")),
        ("[a]", "unknown model '[a]'"),
        ("no_such_package.models:A", "no module 'no_such_package'"),
        (f"{__name__}:Declarin", "did you mean Declaring"),
        (f"{__name__}:Path", "SequentialRecommender"),
    ],
)
def test_wrong_names_are_explained(name: str, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(name)
    assert words in str(caught.value)


def test_stock_classes_are_recboles_own() -> None:
    entry = resolve("recbole:sasrec")
    assert (entry.name, entry.origin, entry.spec) == ("SASRec", "stock", "recbole:SASRec")
    assert load_class(entry).__module__.startswith("recbole.")
    assert entry_of(FPMC).origin == "stock" and entry_of(NARM).origin == "recbole"
    assert entry.properties({}) == ModelProperties(fixed_width=True)  # nothing is known of it


def test_declared_properties() -> None:
    for name in ("PRISM", "SASRec"):
        found = resolve(name).properties({})
        assert found.causal and found.padding_free and found.attention_logits
        assert found.last_query_only and found.last_query_only_training and not found.fixed_width
    assert resolve("Caser").properties({}).fixed_width
    assert resolve("NARM").properties({}) == ModelProperties(padding_free=True)
    assert not resolve("BERT4Rec").properties({}).causal and not resolve("GRU4Rec").properties({}).attention_logits
    for entry in (resolve(f"{__name__}:Declaring"), entry_of(Declaring)):
        assert entry.properties({"short": True}) == ModelProperties(causal=True)
        assert entry.properties({"short": False}).fixed_width


def test_an_error_inside_a_users_module_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_broken_module.py").write_text("import a_package_that_is_not_there\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        resolve("my_broken_module:Model")


@pytest.mark.parametrize("as_in_python_3_9", [False, True])
def test_entry_points_of_other_packages(monkeypatch: pytest.MonkeyPatch, as_in_python_3_9: bool) -> None:
    point = metadata.EntryPoint("Other-Model", f"{__name__}:Declaring", registry.ENTRY_POINT_GROUP)
    found: Any = {registry.ENTRY_POINT_GROUP: (point,)}
    if not as_in_python_3_9:
        found = types.SimpleNamespace(select=lambda group: [point] if group == registry.ENTRY_POINT_GROUP else [])
    monkeypatch.setattr(registry.metadata, "entry_points", lambda: found)
    assert list_models()[-1] == "Other-Model"
    entry = resolve("othermodel")
    assert entry.origin == "entry_point" and load_class(entry) is Declaring


def test_looking_up_a_name_imports_no_model() -> None:
    module = "recbole_prism.model.sequential_recommender.prism"
    saved = sys.modules.pop(module, None)
    try:
        resolve("PRISM")
        assert module not in sys.modules
    finally:
        if saved is not None:
            sys.modules[module] = saved

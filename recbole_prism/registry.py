"""Model names -> where the class lives and what it declares about itself. Strings only: a class is imported at use.

`--model=` accepts a listed name in any spelling of case and hyphens ("prism", "sas-rec"), `recbole:X` for RecBole's own
class on RecBole's own data path, `my.module:MyModel` for any class that declares `config_defaults`, and names that
installed packages register in the entry point group "recbole_prism.models".
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable, Iterable, Mapping, Optional

from recbole_prism.errors import ModelError

ENTRY_POINT_GROUP = "recbole_prism.models"


@dataclass(frozen=True)
class ModelProperties:
    """What a model promises; a fast path is taken only where the promise it needs is made.

    Attributes:
        causal: Output at position t depends on nothing after t.
        padding_free: Neither scores nor losses depend on padding or on the padded width.
        last_query_only: Evaluation reads the last layer at the last valid position only.
        last_query_only_training: The training losses do so too.
        attention_logits: The last layer's raw attention logits can be had.
        all_positions_loss: The loss has a term at every position.
        fixed_width: Batches must be MAX_ITEM_LIST_LENGTH wide.
        counted: Nothing is trained: `count(train_rows)` takes all there is to know from the training split.
    """

    causal: bool = False
    padding_free: bool = False
    last_query_only: bool = False
    last_query_only_training: bool = False
    attention_logits: bool = False
    all_positions_loss: bool = False
    fixed_width: bool = False
    counted: bool = False


@dataclass(frozen=True)
class ModelEntry:
    """One model that `--model=` can name.

    Attributes:
        name: Class name, as in result tables and run directories.
        target: "module:Class".
        display_name: Name as printed in papers.
        properties: Resolved config -> declared properties.
        origin: "own", "recbole" (listed stock class on our data path, trainer and evaluator), "stock" (`recbole:X`, on
            RecBole's data path), "user" (`module:Class`) or "entry_point".
    """

    name: str
    target: str
    display_name: str
    properties: Callable[[Mapping[str, Any]], ModelProperties]
    origin: str

    @property
    def spec(self) -> str:
        """The text that names this model in `--model=` again."""
        return {"stock": f"recbole:{self.name}", "user": self.target}.get(self.origin, self.name)


class _Declared:
    """Properties that no setting changes (a class, not a lambda: a Config must stay picklable)."""

    def __init__(self, **properties: bool) -> None:
        self.properties = ModelProperties(**properties)

    def __call__(self, config: Mapping[str, Any]) -> ModelProperties:
        return self.properties


class _DeclaredByClass:
    """A class may offer `declared_properties(config) -> ModelProperties`; without it, full-width batches."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __call__(self, config: Mapping[str, Any]) -> ModelProperties:
        declare = getattr(_import_target(self.target), "declared_properties", None)
        return ModelProperties(fixed_width=True) if declare is None else declare(config)


_PREFIX_TRANSFORMER = _Declared(
    causal=True, padding_free=True, last_query_only=True, last_query_only_training=True, attention_logits=True
)
_CLOZE_TRANSFORMER = _Declared(padding_free=True, last_query_only=True, attention_logits=True)


def _by_backbone(config: Mapping[str, Any]) -> ModelProperties:
    """PRISM's; without a config those of its default."""
    bidirectional = config.get("backbone") == "bert4rec"
    return (_CLOZE_TRANSFORMER if bidirectional else _PREFIX_TRANSFORMER)(config)


_NOT_CAUSAL = _Declared(padding_free=True, last_query_only=True, last_query_only_training=True, attention_logits=True)
_RECURRENT = _Declared(causal=True, padding_free=True, last_query_only=True, last_query_only_training=True)
# its penalty reads all of the last layer's masks; its logits are not those of the attention in use
_CALIBRATED_TRANSFORMER = _Declared(causal=True, padding_free=True, last_query_only=True)
# a map per head and expert
_FACET_TRANSFORMER = _Declared(causal=True, padding_free=True, last_query_only=True, last_query_only_training=True)


def _star_rec(config: Mapping[str, Any]) -> ModelProperties:
    """STAR-Rec: what its attention may not see decides."""
    mask = "none" if config["official"] else config["attn_mask_mode"]
    sim_norm = "time" if config["official"] else config["sim_norm"]
    per_position = config["moe_level"] == "token"
    return ModelProperties(
        causal=mask == "causal" and sim_norm == "feature" and per_position,
        padding_free=mask != "none",
        last_query_only=per_position,
        last_query_only_training=per_position,
        attention_logits=True,
        fixed_width=mask == "none",
    )


def _view_contrast(config: Mapping[str, Any]) -> ModelProperties:
    """ICLRec and ELCRec: what they are trained on depends on the poolings."""
    poolings = {config["seqcl_pooling"], config["intent_pooling"]}
    sees_padding = any(pooling.endswith("_all") for pooling in poolings)  # of all MAX_ITEM_LIST_LENGTH positions
    return ModelProperties(
        causal=True,
        padding_free=not sees_padding,
        last_query_only=True,
        last_query_only_training=poolings == {"last"},
        attention_logits=True,
        fixed_width=sees_padding,
    )


_COUNTED = _Declared(padding_free=True, counted=True)


def _intents_of_history(config: Mapping[str, Any]) -> ModelProperties:
    """IOCRec: every position looks at the whole history, and in the published form at padding too."""
    masks_padding = bool(config["mask_padding"])
    return ModelProperties(padding_free=masks_padding, attention_logits=True, fixed_width=not masks_padding)


_OWN = "recbole_prism.model.sequential_recommender"
_RECBOLE = "recbole.model.sequential_recommender"

_LISTED: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry("PRISM", f"{_OWN}.prism:PRISM", "PRISM", _by_backbone, "own"),
        ModelEntry("SASRec", f"{_OWN}.sasrec:SASRec", "SASRec", _PREFIX_TRANSFORMER, "own"),
        ModelEntry("GRU4Rec", f"{_OWN}.gru4rec:GRU4Rec", "GRU4Rec", _RECURRENT, "own"),
        ModelEntry("BERT4Rec", f"{_OWN}.bert4rec:BERT4Rec", "BERT4Rec", _CLOZE_TRANSFORMER, "own"),
        ModelEntry("CL4SRec", f"{_OWN}.cl4srec:CL4SRec", "CL4SRec", _PREFIX_TRANSFORMER, "own"),
        ModelEntry("DuoRec", f"{_OWN}.duorec:DuoRec", "DuoRec", _PREFIX_TRANSFORMER, "own"),
        ModelEntry("ACSASRec", f"{_OWN}.acsasrec:ACSASRec", "AC-SASRec", _CALIBRATED_TRANSFORMER, "own"),
        ModelEntry("FAME", f"{_OWN}.fame:FAME", "FAME", _FACET_TRANSFORMER, "own"),
        ModelEntry("ICLRec", f"{_OWN}.iclrec:ICLRec", "ICLRec", _view_contrast, "own"),
        ModelEntry("IOCRec", f"{_OWN}.iocrec:IOCRec", "IOCRec", _intents_of_history, "own"),
        ModelEntry("ELCRec", f"{_OWN}.elcrec:ELCRec", "ELCRec", _view_contrast, "own"),
        ModelEntry("ICSRec", f"{_OWN}.icsrec:ICSRec", "ICSRec", _PREFIX_TRANSFORMER, "own"),
        ModelEntry("FamouSRec", f"{_OWN}.famousrec:FamouSRec", "FamouSRec (reconstruction)", _NOT_CAUSAL, "own"),
        ModelEntry("STARRec", f"{_OWN}.starrec:STARRec", "STAR-Rec", _star_rec, "own"),
        ModelEntry("NARM", f"{_RECBOLE}.narm:NARM", "NARM", _Declared(padding_free=True), "recbole"),
        ModelEntry("Caser", f"{_RECBOLE}.caser:Caser", "Caser", _Declared(fixed_width=True), "recbole"),
        ModelEntry("Popularity", f"{_OWN}.popularity:Popularity", "Popularity", _COUNTED, "own"),
        ModelEntry("Markov", f"{_OWN}.markov:Markov", "Markov", _COUNTED, "own"),
    )
}


def list_models() -> tuple[str, ...]:
    """Names of the models that start with `--model` and `--dataset` alone, entry points of other packages last."""
    return tuple(_LISTED) + tuple(point.name for point in _entry_points() if point.name not in _LISTED)


def nearest(name: object, known: Iterable[str]) -> Optional[str]:
    """The known name most like `name`, ignoring case and hyphens, or None if none is near.

    Args:
        name: What was given; a key of a mapping, for one, need not be text.
        known: The names to choose from.
    """
    table = {_key(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_key(str(name)), table, n=1, cutoff=0.6)
    return table[found[0]] if found else None


def resolve(name: str) -> ModelEntry:
    """Find the model that `--model=name` means.

    Raises:
        ModelError: The name is unknown, or names a class that breaks the contract.
    """
    if name.lower().startswith("recbole:"):
        return _stock_entry(name.split(":", 1)[1])
    if ":" in name:
        module, _, class_name = name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *class_name.split("."))):
            raise ModelError(f"model {name!r} does not name a class in a module", "write --model=my.module:MyModel")
        return _user_entry(name, origin="user")
    for listed, entry in _LISTED.items():
        if _key(listed) == _key(name):
            return entry
    for point in _entry_points():
        if _key(point.name) == _key(name):
            return _user_entry(point.value, origin="entry_point")
    raise _unknown_model(name)


def entry_of(model_class: type) -> ModelEntry:
    """The entry of a class that was handed over instead of a name.

    Raises:
        ModelError: It is no sequential recommender, or is neither listed nor RecBole's and lacks `config_defaults`.
    """
    target = f"{model_class.__module__}:{model_class.__qualname__}"
    for entry in _LISTED.values():
        if entry.target == target:
            return entry
    if model_class.__module__.startswith(f"{_RECBOLE}."):
        return _stock_entry(model_class.__name__)
    _check_class(model_class, target)
    return ModelEntry(model_class.__name__, target, model_class.__name__, _properties_of_class(model_class), "user")


def load_class(entry: ModelEntry) -> type:
    """Import the class of an entry.

    Raises:
        ModelError: Its module or the class in it does not exist.
    """
    return _import_target(entry.target)


def _key(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


def _entry_points() -> tuple[metadata.EntryPoint, ...]:
    points: Any = metadata.entry_points()
    if hasattr(points, "select"):
        return tuple(points.select(group=ENTRY_POINT_GROUP))
    return tuple(points.get(ENTRY_POINT_GROUP, ()))  # Python 3.9: a plain dict of groups


def _import_target(target: str) -> type:
    module_name, _, class_name = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, and something that it imports does not: that is its author's error to see
        raise ModelError(
            f"there is no module {error.name!r} (for the model {target})",
            "write my.module:MyModel, and have its folder on PYTHONPATH",
        ) from error
    for part in class_name.split("."):
        if not hasattr(found, part):
            classes = [name for name, member in vars(found).items() if inspect.isclass(member)]
            guess = nearest(class_name, classes)
            raise ModelError(
                f"module {module_name} has no class {class_name!r}",
                f"did you mean {guess}?" if guess else "write --model=my.module:MyModel",
            )
        found = getattr(found, part)
    return found


def _sequential_classes() -> dict[str, type]:
    """RecBole's own sequential models by class name."""
    module = importlib.import_module(_RECBOLE)
    return {
        name: member
        for name, member in vars(module).items()
        if inspect.isclass(member) and member.__module__.startswith(f"{_RECBOLE}.")
    }


def _stock_entry(name: str) -> ModelEntry:
    classes = _sequential_classes()
    by_key = {_key(candidate): candidate for candidate in classes}
    if _key(name) not in by_key:
        guess = nearest(name, classes)
        cure = f"did you mean recbole:{guess}?" if guess else f"RecBole has: {', '.join(sorted(classes))}"
        raise ModelError(f"RecBole has no sequential model {name!r}", cure)
    found = by_key[_key(name)]
    target = f"{classes[found].__module__}:{found}"
    return ModelEntry(found, target, f"{found} (RecBole)", _Declared(fixed_width=True), "stock")


def _user_entry(target: str, origin: str) -> ModelEntry:
    model_class = _import_target(target)
    _check_class(model_class, target)
    return ModelEntry(model_class.__name__, target, model_class.__name__, _DeclaredByClass(target), origin)


def _properties_of_class(model_class: type) -> Callable[[Mapping[str, Any]], ModelProperties]:
    declare = getattr(model_class, "declared_properties", None)
    return _Declared(fixed_width=True) if declare is None else declare


def _check_class(model_class: Any, target: str) -> None:
    from recbole.model.abstract_recommender import SequentialRecommender

    if not (inspect.isclass(model_class) and issubclass(model_class, SequentialRecommender)):
        raise ModelError(f"{target} is not a class derived from RecBole's SequentialRecommender")
    if not isinstance(getattr(model_class, "config_defaults", None), dict):
        raise ModelError(
            f"{target} does not declare its settings",
            "add a class attribute `config_defaults = {...}` with a default for each (an empty dict if it has none)",
        )


def _unknown_model(name: str) -> ModelError:
    guess = nearest(name, list_models())
    if guess:
        return ModelError(f"unknown model {name!r}", f"did you mean {guess}?")
    stock = {_key(candidate): candidate for candidate in _sequential_classes()}.get(_key(name))
    if stock:
        return ModelError(f"{name!r} is not listed here", f"RecBole's own class: --model=recbole:{stock}")
    return ModelError(f"unknown model {name!r}", f"one of {', '.join(list_models())}; recbole:X; my.module:MyModel")

"""RecBole's Config without its side effects, with every key checked before any data is read.

Merge order, weakest first: overall < model < data set < settings files in the given order < dict < command line.
`eval_args` is merged part by part; every other value replaces the weaker one. `config.origin[key]` names the place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Mapping, Optional, Union

import numpy as np
import recbole.config.configurator as recbole_configurator
import torch
import yaml
from recbole.utils import ModelType

from recbole_prism import config_checks, config_columns, registry, settings_files
from recbole_prism.errors import ConfigError, ModelError

# Where and how fast a run is made, not what it computes: two runs that differ only here are the same experiment.
MACHINE_KEYS = frozenset(
    ("device", "n_threads", "worker", "data_path", "checkpoint_dir", "show_progress", "state", "eval_memory_gb")
    + ("data_cache",)
    + ("metric_decimal_place", "loss_decimal_place", "seed")  # display only; the seed stands beside the identity
)


class Config(recbole_configurator.Config):
    """Settings of one run. Reads no command line, writes no environment, and shares nothing with another Config.

    Args:
        model: Name as in `--model=`, or a class.
        dataset: Name of the data set.
        config_file_list: Settings files, the last one strongest.
        config_dict: Settings of the caller.
        command_line: Settings parsed from the command line; the strongest.
        require_data: False skips the check that the atomic file exists (a saved model is loaded without its data).

    Attributes:
        origin: Key -> "default", "model PRISM.yaml", "data set ml-100k.yaml", "file x.yaml",
            "recipe ml-100k/PRISM.yaml", "dict", "argument" or "command line".
        model_entry: What the registry knows of the model.
        properties: The model's declared properties under these settings.

    Raises:
        ConfigError: A key is unknown or misspelt, or a value has the wrong type or range.
        ModelError: The model is unknown or breaks the contract.
        DataError: There is no such data set.
    """

    model_entry: registry.ModelEntry
    properties: registry.ModelProperties

    def __init__(
        self,
        model: Union[str, type, None] = None,
        dataset: Optional[str] = None,
        config_file_list: Optional[list[str]] = None,
        config_dict: Optional[Mapping[str, Any]] = None,
        command_line: Optional[Mapping[str, Any]] = None,
        require_data: bool = True,
    ) -> None:
        _check_arguments(config_file_list, {"config_dict": config_dict, "command_line": command_line})
        self.origin: dict[str, str] = {}
        self._layers: list[tuple[str, dict[str, Any]]] = []
        self._command_line = plain(dict(command_line or {}))
        self._require_data = require_data
        super().__init__(model, dataset, config_file_list, config_dict)
        self.properties = self.model_entry.properties(self.final_config_dict)
        if not isinstance(self.properties, registry.ModelProperties):
            raise ModelError(
                f"declared_properties of {self.model_entry.target} gives {self.properties!r}",
                "it must return a recbole_prism.registry.ModelProperties",
            )

    # RecBole's steps, in the order in which its __init__ calls them

    def _init_parameters_category(self) -> None:
        super()._init_parameters_category()
        # copies: RecBole appends to the lists of its module
        self.parameters: dict[str, list[str]] = {category: list(keys) for category, keys in self.parameters.items()}

    def _build_yaml_loader(self) -> type[yaml.SafeLoader]:
        return settings_files.SettingsLoader  # RecBole changes yaml.FullLoader for the whole process

    def _load_config_files(self, file_list: Optional[list[str]]) -> dict[str, Any]:
        for file in file_list or []:
            self._layers.append((_file_origin(Path(file)), settings_files.load_yaml(Path(file))))
        return {}

    def _load_variable_config_dict(self, config_dict: Optional[Mapping[str, Any]]) -> dict[str, Any]:
        self._layers.append(("dict", plain(dict(config_dict or {}))))
        return {}

    def _load_cmd_line(self) -> dict[str, Any]:
        self._layers.append(("command line", self._command_line))
        return {}

    def _merge_external_config_dict(self) -> None:
        self.external_config_dict: dict[str, Any] = {}
        for _, values in self._layers:
            self.external_config_dict.update(values)

    def _get_model_and_dataset(self, model: Union[str, type, None], dataset: Optional[str]) -> tuple[str, type, str]:
        given: dict[str, Any] = {"model": model, "dataset": dataset}
        self._layers.append(("argument", {key: value for key, value in given.items() if isinstance(value, str)}))
        for key, value in given.items():
            given[key] = value = self.external_config_dict.get(key) if value is None else value
            if value is None:
                raise ConfigError(f"no {key} is named", f"--{key}=NAME, or `{key}: NAME` in a settings file")
            if not isinstance(value, str) and not (key == "model" and isinstance(value, type)):
                cure = f"""quote it: --{key}='"{value}"'""" if isinstance(value, (bool, int, float)) else ""
                raise ConfigError(f"{key} is {value!r}, expected a name", cure or f"write --{key}=NAME")
        settings_files.check_name("dataset", given["dataset"])
        if isinstance(given["model"], type):
            model_class, self.model_entry = given["model"], registry.entry_of(given["model"])
        else:
            self.model_entry = registry.resolve(given["model"])
            model_class = registry.load_class(self.model_entry)
        if getattr(model_class, "type", None) != ModelType.SEQUENTIAL:
            raise ModelError(
                f"{self.model_entry.target} is not a sequential model", "its `type` must be ModelType.SEQUENTIAL"
            )
        return self.model_entry.name, model_class, given["dataset"]

    def _load_internal_config_dict(self, model: str, model_class: type, dataset: str) -> None:
        is_recbole = self.model_entry.origin in ("recbole", "stock")
        self.internal_config_dict: dict[str, Any] = {}
        super()._load_internal_config_dict(model if is_recbole else "", model_class, dataset)
        recbole_values = self.internal_config_dict
        derived = {"MODEL_TYPE": recbole_values.pop("MODEL_TYPE")}
        layers = [("default", recbole_values), ("default", settings_files.load_yaml(_properties("overall.yaml")))]
        model_values = self._model_layer(model_class)
        layers.append((f"model {self.model_entry.name}" + ("" if self._is_foreign else ".yaml"), model_values))
        dataset_file = _properties(f"dataset/{dataset}.yaml")
        if dataset_file.is_file():
            values = settings_files.load_yaml(dataset_file)
            values.pop("source", None)  # where the raw file comes from: read by data.prepare
            layers.append((f"data set {dataset}.yaml", values))
        self._model_defaults = model_values
        self._defaults = {key: value for _, values in layers for key, value in values.items()}
        self._layers = layers + self._layers
        self.internal_config_dict = derived

    def _get_final_config_dict(self) -> dict[str, Any]:
        final: dict[str, Any] = {}
        for origin, values in self._layers:
            for key, value in values.items():
                if key == "eval_args" and isinstance(value, dict):
                    value = config_checks.merge_eval_args(final.get("eval_args", {}), value, origin)
                final[key] = value
                self.origin[key] = origin
        final["model"], final["dataset"] = self.model_entry.spec, self.dataset
        if self.origin["valid_metric_bigger"] == "default":
            del final["valid_metric_bigger"]  # follows from valid_metric
        if self.origin["load_col"] == "default":
            final["load_col"] = {"inter": config_columns.main_columns(final)}  # under the names they have
        if isinstance(final["additional_feat_suffix"], str):  # as some of RecBole's model files write it
            final["additional_feat_suffix"] = [final["additional_feat_suffix"]]
        self._settle_negatives(final)
        config_checks.check_all(
            final, self.origin, self.model_entry, self.model_class, self._defaults, self._model_defaults
        )
        if self._require_data:
            config_checks.check_dataset(final, settings_files.properties_folder())
            config_columns.check_columns(final, self.origin)
        for key in ("metrics", "topk"):
            final[key] = list(final[key]) if isinstance(final[key], list) else [final[key]]
        self._settings = frozenset(final)
        self._requested = {key: final[key] for key in ("model", "device", "data_path", "train_neg_sample_args")}
        final.update(self.internal_config_dict)
        return final

    def _init_device(self) -> None:
        """RecBole writes CUDA_VISIBLE_DEVICES here; this reads nothing and writes nothing but the key `device`."""
        self.final_config_dict.update(device=_device(self._requested["device"]), single_spec=True, local_rank=0)

    # what this package adds

    def resolved(self) -> dict[str, Any]:
        """All settings as plain values; `Config(config_dict=config.resolved())` gives the same settings again."""
        values = {key: self.final_config_dict[key] for key in sorted(self._settings)}
        return plain({**values, **self._requested})

    def identity_values(self) -> dict[str, Any]:
        """What decides the numbers of a run: `resolved()` without the machine's keys, the display's and the seed."""
        return {key: value for key, value in self.resolved().items() if key not in MACHINE_KEYS}

    def changes(self) -> dict[str, tuple[Any, str]]:
        """Settings that come from the caller: key -> (value, where from)."""
        given = ("file ", "recipe ", "dict", "command line", "argument")
        values = self.resolved()
        return {key: (values[key], origin) for key, origin in sorted(self.origin.items()) if origin.startswith(given)}

    @property
    def _is_foreign(self) -> bool:
        """The model's defaults stand in its class, not in a file."""
        return self.model_entry.origin in ("user", "entry_point")

    def _model_layer(self, model_class: type) -> dict[str, Any]:
        """Defaults of the model: our YAML, RecBole's YAML for a stock class, `config_defaults` for anybody else's."""
        if self.model_entry.origin in ("own", "recbole"):
            return settings_files.load_yaml(_properties(f"model/{self.model_entry.name}.yaml"))
        if self.model_entry.origin == "stock":
            recbole_folder = Path(recbole_configurator.__file__).parent.parent
            file = recbole_folder / "properties" / "model" / f"{self.model_entry.name}.yaml"
            return settings_files.load_yaml(file) if file.is_file() else {}
        declared: dict[str, Any] = model_class.config_defaults  # type: ignore[attr-defined]  # the registry saw to it
        loss = {} if hasattr(model_class, "input_type") else {"loss_type": "CE"}  # RecBole wants to know one of them
        return {**loss, **plain(dict(declared))}

    def _settle_negatives(self, final: dict[str, Any]) -> None:
        """One spelling of "no negatives"; a stock model with a pairwise loss has RecBole's one uniform negative."""
        negatives = final["train_neg_sample_args"]
        if isinstance(negatives, dict) and negatives.get("distribution") in (None, "none", "None"):
            final["train_neg_sample_args"] = None
        if self.model_entry.origin == "stock" and self.origin.get("train_neg_sample_args") == "default":
            if config_checks.is_pairwise(self.model_class, final):
                final["train_neg_sample_args"] = self._layers[0][1]["train_neg_sample_args"]


def _check_arguments(config_file_list: Any, settings: Mapping[str, Any]) -> None:
    files = config_file_list or []
    if not (isinstance(files, (list, tuple)) and all(isinstance(file, (str, Path)) for file in files)):
        raise ConfigError(f"config_file_list is {config_file_list!r}", "give a list: config_file_list=['x.yaml']")
    for name, values in settings.items():
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"{name} is {values!r}, expected a mapping", f"write {name}={{'epochs': 5}}")


def check_topk(config: Config, n_items: int) -> None:
    """Refuse a cut-off above the number of items; called right after the data is read.

    Args:
        config: The settings.
        n_items: Real items, without padding.

    Raises:
        ConfigError: max(topk) > n_items.
    """
    largest = max(config["topk"])
    if largest > n_items:
        raise ConfigError(
            f"topk {largest} is above the {n_items} items of {config['dataset']}", f"topk at most {n_items}"
        )


def plain(value: Any) -> Any:
    """A value as JSON and YAML know it: NumPy numbers become Python's, tuples lists, paths text.

    Raises:
        ConfigError: Some part of it is none of None, bool, int, float, str, list and dict.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return os.fspath(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    if isinstance(value, Mapping):
        return {key: plain(element) for key, element in value.items()}
    raise ConfigError(
        f"a setting has the value {value!r}", "settings are numbers, text, True, False, None, lists and mappings"
    )


def _properties(name: str) -> Path:
    return settings_files.properties_folder() / name


def _file_origin(path: Path) -> str:
    recipes = _properties("recipe")
    resolved = path.resolve()
    if recipes in resolved.parents:
        return f"recipe {resolved.relative_to(recipes).as_posix()}"
    return f"file {os.fspath(path)}"


def _device(name: str) -> torch.device:
    n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if n_cuda else "cpu")
    device = torch.device(name)  # the form was checked
    if device.type == "cuda" and (device.index or 0) >= n_cuda:
        raise ConfigError(
            f"device {name} is not there (torch sees {n_cuda} CUDA devices)", "device=auto takes what there is"
        )
    return device

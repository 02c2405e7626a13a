"""What a search is: its settings, its space, its way, and the folder that stands for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from recbole_prism.config import MACHINE_KEYS, Config
from recbole_prism.errors import ConfigError
from recbole_prism.quick_start import identity_of
from recbole_prism.run_identity import compute_identity
from recbole_prism.run_store import RunStore
from recbole_prism.tuning.proposals import RANDOM, SEARCHERS
from recbole_prism.tuning.space import Space

ASHA, NONE = SCHEDULERS = ("asha", "none")


@dataclass(frozen=True)
class Way:
    """How a search is made.

    Attributes:
        searcher: "grid", "random" or "optuna".
        n_trials: At most so many; None tries a whole grid.
        scheduler: "asha" stops trials that are worse than the others after as many epochs; "none" lets all end.
        grace: ASHA stops no trial before so many epochs.
        reduction: ASHA lets about one in so many go on.
        cpus: Processors per trial, also its torch threads.
        gpus: Share of a GPU per trial; None: one if the search's device is a GPU.
        parallel: At most so many trials at a time; None: as many as the processors and GPUs allow.
        hours: Begin nothing and stop all after so long; None: no limit.
        address: Of a Ray cluster ("auto", "host:6379", "ray://host:10001"); None: this machine.
    """

    searcher: str = RANDOM
    n_trials: Optional[int] = 20
    scheduler: str = ASHA
    grace: int = 5
    reduction: float = 3.0
    cpus: float = 1.0
    gpus: Optional[float] = None
    parallel: Optional[int] = None
    hours: Optional[float] = None
    address: Optional[str] = None

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            ConfigError: Naming the option.
        """
        for name, value, known in (
            ("searcher", self.searcher, SEARCHERS),
            ("scheduler", self.scheduler, SCHEDULERS),
        ):
            if value not in known:
                raise ConfigError(f"--{name}={value}", f"one of {', '.join(known)}")
        positive = {"trials": self.n_trials, "grace": self.grace, "cpus": self.cpus, "parallel": self.parallel}
        for name, number in {**positive, "hours": self.hours}.items():
            if number is not None and number <= 0:
                raise ConfigError(f"--{name}={number}", "a number above 0")
        if self.reduction <= 1 or (self.gpus is not None and self.gpus < 0):
            raise ConfigError(
                f"--reduction={self.reduction}, --gpus={self.gpus}", "reduction above 1, gpus 0 or a share"
            )


@dataclass(frozen=True)
class Plan:
    """A search that is ready to be started.

    Attributes:
        settings: Of every trial, but for what is searched: all that differs from the package's defaults, wherever
            it came from; paths absolute.
        chosen: The part of them that a recipe holds.
        space: What is searched.
        way: How.
        epochs: At most so many per trial.
        metric: Validation metric, as in "NDCG@20".
        bigger: Whether more of it is better.
        folder: The search's own folder.
    """

    settings: dict[str, Any]
    chosen: dict[str, Any]
    space: Space
    way: Way
    epochs: int
    metric: str
    bigger: bool
    folder: Path

    @property
    def gpus(self) -> float:
        """Share of a GPU per trial."""
        return float(self.settings["device"] == "cuda") if self.way.gpus is None else self.way.gpus

    @property
    def n_trials(self) -> int:
        """How many trials there will be."""
        wanted = self.space.size if self.way.n_trials is None else min(self.way.n_trials, self.space.size)
        if wanted == float("inf"):
            raise ConfigError("a space with a range has no end", "--trials=N says how many to try")
        return int(wanted)


def make_plan(config: Config, space: Space, way: Way) -> Plan:
    """Check everything that can be checked before a trial starts, and read the data once.

    The same settings, space, data, code, searcher, scheduler and seed are the same search, which is gone on with. The
    number of trials, the machine's share and the hours may differ.

    Args:
        config: Settings of the search, without the searched values.
        space: What is searched.
        way: How.

    Raises:
        RecBolePrismError: Settings, space or way cannot be used.
    """
    way.check()
    if config["eval_step"] > config["epochs"]:
        raise ConfigError("eval_step is above epochs: no trial is ever validated", "a search selects on validation")
    gpus = way.gpus if way.gpus is not None else float(config["device"].type == "cuda")
    resolved = config.resolved()
    given = {key: value for key, (value, _) in config.changes().items()}
    chosen = {key: value for key, value in given.items() if key not in MACHINE_KEYS}
    chosen.update(
        model=config.model_entry.spec,
        dataset=config["dataset"],
        seed=config["seed"],
        n_threads=config["n_threads"] or max(1, int(way.cpus)),
    )
    settings = {
        **given,
        **chosen,
        "data_path": str(Path(resolved["data_path"]).expanduser().resolve()),
        "checkpoint_dir": str(Path(resolved["checkpoint_dir"]).expanduser().resolve()),
        "device": "cuda" if gpus else "cpu",  # Ray shows each trial its own card, as the first
        "show_progress": False,
    }
    space.check(settings)
    base = identity_of(config, RunStore().fingerprint(config))
    asha = [way.grace, way.reduction] if way.scheduler == ASHA else []
    own = {"space": space.to_dict(), "searcher": way.searcher, "scheduler": [way.scheduler, *asha]}
    name = f"{config.model_entry.name}-{way.searcher}-{compute_identity(own, base, str(config['seed']))}"
    folder = Path(settings["checkpoint_dir"]) / "searches" / config["dataset"] / name
    metric, bigger = config["valid_metric"], config["valid_metric_bigger"]
    return Plan(settings, chosen, space, way, config["epochs"], metric, bigger, folder)

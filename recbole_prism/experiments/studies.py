"""The tables and figures of the paper as lists of runs, and the trends that the paper sees in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from recbole_prism import registry
from recbole_prism.errors import ConfigError
from recbole_prism.run_store import RunSpec

SEEDS = (2020, 2021, 2022, 2023, 2024)  # the paper: five seeds, not named
PAPER_DATASETS = (
    "amazon-toys", "amazon-beauty", "amazon-games", "amazon-sports", "ml-1m", "yelp", "amazon-electronics",
)  # fmt: skip
PAPER_MODELS = (
    "SASRec", "BERT4Rec", "GRU4Rec", "AC-SASRec", "CL4SRec", "DuoRec", "ICLRec", "IOCRec", "ICSRec", "ELCRec", "FAME",
    "FamouSRec", "STAR-Rec", "PRISM",
)  # fmt: skip
NDCG = "ndcg@20"


@dataclass(frozen=True)
class Variant:
    """One configuration of a study.

    Attributes:
        key: Short name without spaces, part of a run's name.
        label: As the table shows it.
        model: As in `--model=`.
        settings: What differs from the defaults.
        printed: Its name in the paper's tables, where they have it.
    """

    key: str
    label: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    printed: str = ""


@dataclass(frozen=True)
class Claim:
    """A trend: one variant is better than another in NDCG@20 on every data set.

    Attributes:
        better: Key of the variant.
        worse: Key of the other.
    """

    better: str
    worse: str


@dataclass(frozen=True)
class Study:
    """A table or figure.

    Attributes:
        name: As on the command line.
        title: What it shows.
        datasets: Those of the paper, the default.
        variants: In the order of the table.
        claims: What the paper sees.
        kind: Which report it gets: "accuracy", "sweep", "cost", "convergence" or "complexity".
        note: What a reader must know of it.
        settings: Of all variants.
        seeds: Default.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...] = ()
    kind: str = "accuracy"
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = SEEDS

    def variant(self, key: str) -> Variant:
        """The variant of a key."""
        return next(variant for variant in self.variants if variant.key == key)

    def specs(self, datasets: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any]) -> list[RunSpec]:
        """Its runs, the first seed of everything first: a budget that ends early leaves a whole table of fewer seeds.

        Args:
            datasets: Which data sets.
            seeds: Which seeds.
            settings: Of all runs, stronger than those of the study.
        """
        return [
            RunSpec(
                f"{variant.key}-{dataset}",
                variant.model,
                dataset,
                seed,
                {**self.settings, **variant.settings, **settings},
            )
            for seed in seeds
            for dataset in datasets
            for variant in self.variants
        ]


_PRISM = Variant("prism", "PRISM", "PRISM", printed="PRISM")
_SASREC = Variant("sasrec", "SASRec", "SASRec", printed="SASRec")
_FAMOUSREC = Variant("famousrec", "FamouSRec (reconstruction)", "FamouSRec", printed="FamouSRec")


def _prism(key: str, label: str, **settings: Any) -> Variant:
    return Variant(key, label, "PRISM", settings, printed=label)


def _model(name: str) -> Variant:
    if name == _FAMOUSREC.printed:
        return _FAMOUSREC
    return Variant(name.lower().replace("-", ""), name, name, printed=name)


_WITH_K = {k: _prism(f"prism-k{k}", f"PRISM K={k}", n_lenses=k) for k in (2, 4, 6, 8)}
# Figure 9 varies one setting at a time around the defaults; 4, 0.1, 0.1 and 0.25 are those
SWEEPS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "K": ("n_lenses", (2, 4, 6, 8)),
    "lambda": ("aux_weight", (0.01, 0.05, 0.1, 0.3, 0.5)),
    "tau": ("cl_temperature", (0.05, 0.1, 0.7, 1.0, 2.0)),
    "rho": ("perspective_dropout", (0.0, 0.25, 0.5, 0.75)),
}
PROBES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "T": ("MAX_ITEM_LIST_LENGTH", (10, 20, 40, 80)),
    "d": ("hidden_size", (32, 64, 128)),
    "K": ("n_lenses", (2, 4, 8)),
}
PROBE_BASE = {"MAX_ITEM_LIST_LENGTH": 40, "hidden_size": 64, "n_lenses": 4}


def sweep_key(symbol: str, value: Any) -> str:
    """Key of the variant of a sweep: "lambda-0.1"."""
    return f"{symbol}-{value}"


def _sweep_variants(
    sweeps: Mapping[str, tuple[str, tuple[Any, ...]]], base: Optional[Mapping[str, Any]] = None
) -> tuple[Variant, ...]:
    return tuple(
        Variant(sweep_key(symbol, value), f"{symbol} = {value}", "PRISM", {**(base or {}), key: value})
        for symbol, (key, values) in sweeps.items()
        for value in values
    )


def _performance_study() -> Study:
    models = tuple(_model(name) for name in PAPER_MODELS)
    return Study(
        "table2",
        "performance",
        PAPER_DATASETS,
        models,
        tuple(Claim("prism", model.key) for model in models if model.key != "prism"),
        note="Every model under the common protocol with its own published weights; nothing was tuned for a data set.",
    )


_COST_VARIANTS = (_SASREC, _FAMOUSREC, *(_WITH_K[k] for k in (2, 4, 6, 8)))
_TOYS = ("amazon-toys",)

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        _performance_study(),
        Study(
            "table3",
            "ablation of the objectives",
            ("amazon-toys", "ml-1m"),
            (
                _PRISM,
                _prism("no-spcl", "w/o SPCL", spcl=False),
                _prism("no-same-target", "SPCL w/o same target", same_target=False),
                _prism("no-spm", "SPCL w/o SPM", spm=False),
                _prism("no-ccl", "w/o CCL", ccl=False),
            ),
            tuple(Claim("prism", key) for key in ("no-spcl", "no-same-target", "no-spm", "no-ccl"))
            + tuple(Claim(key, "no-spcl") for key in ("no-same-target", "no-spm", "no-ccl")),
        ),
        Study(
            "figure5",
            "dual view",
            _TOYS,
            (
                _SASREC,
                _prism("affinity", "affinity view only (w/o contrast)", views="affinity"),
                _prism("contrast", "contrast view only (w/o affinity)", views="contrast"),
                _prism("no-boost", "w/o PGA", boost_form="none"),
                _PRISM,
            ),
            (
                *(Claim("prism", key) for key in ("affinity", "contrast", "no-boost")),
                *(Claim(key, "sasrec") for key in ("affinity", "contrast")),
                *(Claim(key, "no-boost") for key in ("affinity", "contrast")),
                Claim("contrast", "affinity"),
            ),
            note="The paper draws this without a table, so there are no numbers to stand beside ours.",
        ),
        Study(
            "table6",
            "cost of training and inference",
            _TOYS,
            _COST_VARIANTS,
            kind="cost",
            seeds=SEEDS[:1],
            note="The paper's seconds and memory are of one RTX 3090, ours of the device named: compare rows.",
        ),
        Study(
            "table7",
            "training to convergence",
            _TOYS,
            (_SASREC, _FAMOUSREC, _WITH_K[4]),
            kind="convergence",
            seeds=SEEDS[:1],
            note="The paper: PRISM's whole training is about 5 times faster than FamouSRec's.",
        ),
        Study(
            "figure8",
            "accuracy and cost over K",
            _TOYS,
            tuple(_WITH_K.values()),
            (Claim("prism-k4", "prism-k6"), Claim("prism-k4", "prism-k8"), Claim("prism-k8", "prism-k6")),
            kind="cost",
            seeds=SEEDS[:1],
        ),
        Study(
            "complexity",
            "cost over T, d and K",
            ("ml-100k",),
            _sweep_variants(PROBES, PROBE_BASE),
            kind="complexity",
            settings={"epochs": 1},
            seeds=SEEDS[:1],
            note="One epoch each: these runs measure time and memory, their accuracy means nothing.",
        ),
        Study(
            "figure9",
            "sensitivity to K, lambda, tau and rho",
            _TOYS,
            _sweep_variants(SWEEPS),
            kind="sweep",
            seeds=SEEDS[:1],
            note="The values of K, lambda and tau are the paper's search space, those of rho are ours.",
        ),
    )
}  # fmt: skip
TABLE1 = "table1"  # counts of the data sets: no runs
NAMES = (TABLE1, *STUDIES)


def find_study(name: str, models: Sequence[str] = ()) -> Study:
    """The study of a name.

    Args:
        name: One of `NAMES`, but table1.
        models: Only these variants, by key, label or model name; empty for all. Claims about others go.

    Raises:
        ConfigError: There is no such study or variant.
    """
    if name not in STUDIES:
        guess = registry.nearest(name, NAMES)
        raise ConfigError(
            f"nothing is called {name!r}", f"did you mean {guess}?" if guess else f"one of {', '.join(NAMES)}"
        )
    study = STUDIES[name]
    if not models:
        return study
    chosen: list[Variant] = []
    for wanted in models:
        found = [v for v in study.variants if _plain(wanted) in (_plain(v.key), _plain(v.label))]
        if not found:
            raise ConfigError(f"{name} has no {wanted!r}", f"one of {', '.join(v.label for v in study.variants)}")
        chosen += found
    variants = tuple(variant for variant in study.variants if variant in chosen)
    keys = {variant.key for variant in variants}
    claims = tuple(claim for claim in study.claims if {claim.better, claim.worse} <= keys)
    return Study(**{**vars(study), "variants": variants, "claims": claims})


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")

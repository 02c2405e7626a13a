"""What all benchmarks share: contenders, interleaved timing, ratios within one run, and the two output files.

Timing. The machine may be shared, so each step is timed twice: by the wall clock and by the CPU time of this process.
With one thread on a CPU both agree on an idle machine; on a busy one only the CPU time means anything, and every ratio
is taken from it. On a GPU the wall clock counts (with a synchronisation before each reading).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # from a checkout, installed or not

import recbole_prism  # noqa: E402, F401  isort: skip  (before RecBole: its shims)
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from recbole_prism.config import Config  # noqa: E402
from recbole_prism.data.preparation import create_dataset, data_preparation  # noqa: E402
from recbole_prism.trainer import seed_everything  # noqa: E402
from recbole_prism.trainer.losses import LossTracker  # noqa: E402
from recbole_prism.trainer.trainer import Trainer  # noqa: E402

RESULTS = ROOT / "results" / "speed"


# ---- timing


@dataclass
class Timings:
    """Seconds of the repetitions of one contender, wall clock and CPU."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def of(self, device: torch.device) -> list[float]:
        """The clock that counts on a device."""
        return self.cpu if device.type == "cpu" else self.wall


def interleaved(
    contenders: dict[str, Callable[[], Any]], rounds: int, warmup: int = 2, device: Optional[torch.device] = None
) -> dict[str, Timings]:
    """Call every contender once per round, in turn, so that all of them meet the same state of the machine."""
    timings = {name: Timings() for name in contenders}
    for number in range(warmup + rounds):
        for name, call in contenders.items():
            synchronise(device)
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            synchronise(device)
            if number >= warmup:
                timings[name].wall.append(time.perf_counter() - wall)
                timings[name].cpu.append(time.process_time() - cpu)
    return timings


def synchronise(device: Optional[torch.device]) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)


def ratio(ours: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of the ratio, round by round."""
    ratios = sorted(a / b for a, b in zip(ours, reference))
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"median": middle, "q1": low, "q3": high}


# ---- contenders


@dataclass
class Contender:
    """A model with everything a training step needs.

    Attributes:
        step: One step on the next batch, loading of the batch included.
        n_batches: Steps in an epoch.
    """

    name: str
    model: nn.Module
    step: Callable[[], Any]
    n_batches: int
    loaders: tuple[Any, Any, Any]
    config: Any


def settings(arguments: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Settings that all contenders share: the common protocol of the models' files."""
    shared: dict[str, Any] = {"show_progress": False, "n_threads": arguments.threads, "device": arguments.device}
    if arguments.data_path:
        shared["data_path"] = str(arguments.data_path)
    return {**shared, **more}


def endless(loader: Any) -> Iterator[Any]:
    """Batches of epoch 0, 1, 2, ..."""
    epoch = 0
    while True:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def ours(name: str, model: str, dataset: str, arguments: argparse.Namespace, **more: Any) -> Contender:
    """A model of this package, trained by its own loop, loader and optimizer."""
    config = Config(model=model, dataset=dataset, config_dict=settings(arguments, **more))
    loaders = data_preparation(config, create_dataset(config))
    seed_everything(config["seed"])
    built = config.model_class(config, loaders[0].info).to(config["device"])
    trainer, tracker, batches = Trainer(config, built), LossTracker(config["device"]), endless(loaders[0])
    built.train()
    return Contender(
        name, built, lambda: trainer._train_batch(next(batches), tracker, 0), len(loaders[0]), loaders, config
    )


def stock(name: str, dataset: str, arguments: argparse.Namespace, anomaly: bool, **more: Any) -> Contender:
    """RecBole's SASRec with RecBole's config, data, loader, optimizer and the steps of its training loop."""
    from recbole.model.sequential_recommender.sasrec import SASRec

    config = recbole_config(dataset, arguments, **more)
    loaders = stock_loaders(config)
    seed_everything(config["seed"])
    model = SASRec(config, loaders[0].dataset).to(config["device"])
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    batches = endless(loaders[0])

    def step() -> None:
        with torch.autograd.set_detect_anomaly(anomaly, check_nan=True):
            interaction = next(batches).to(config["device"])
            optimizer.zero_grad()
            loss = model.calculate_loss(interaction)
            if torch.isnan(loss):  # RecBole reads the loss twice a step
                raise ValueError("Training loss is nan")
            loss.item()
            loss.backward()
            optimizer.step()

    return Contender(name, model, step, len(loaders[0]), loaders, config)


def stock_loaders(config: Any) -> tuple[Any, Any, Any]:
    """RecBole's loaders; its rows are made once per data set (a second loader over them is another pass only)."""
    from recbole.data import create_dataset as create
    from recbole.data import data_preparation as prepare

    key = (config["dataset"], config["eval_batch_size"])
    if key not in _STOCK_LOADERS:
        _STOCK_LOADERS.clear()  # one data set at a time: the rows of ml-1m take gigabytes
        _STOCK_LOADERS[key] = prepare(config, create(config))
    return _STOCK_LOADERS[key]


_STOCK_LOADERS: dict[tuple[str, int], tuple[Any, Any, Any]] = {}


def recbole_config(dataset: str, arguments: argparse.Namespace, **more: Any) -> Any:
    """RecBole's own Config with the values that our files give our SASRec."""
    from recbole.config import Config as RecBoleConfig

    like = Config(model="SASRec", dataset=dataset, config_dict=settings(arguments))
    keys = (
        "load_col eval_args MAX_ITEM_LIST_LENGTH train_batch_size learning_rate metrics topk "
        "valid_metric seed n_layers n_heads hidden_size inner_size hidden_dropout_prob attn_dropout_prob hidden_act "
        "layer_norm_eps initializer_range loss_type data_path USER_ID_FIELD ITEM_ID_FIELD TIME_FIELD field_separator"
    ).split()
    values = {key: like[key] for key in keys} | {
        "data_path": str(Path(like["data_path"]).parent), "show_progress": False, "use_gpu": arguments.device != "cpu",
        "train_neg_sample_args": None, "normalize_all": False, **more,
    }  # fmt: skip
    argv, sys.argv = sys.argv, sys.argv[:1]  # RecBole reads it
    try:
        return RecBoleConfig(model="SASRec", dataset=dataset, config_dict=values)
    finally:
        sys.argv = argv


@contextmanager
def scratch_directory() -> Iterator[None]:
    """RecBole's trainer opens folders in the working directory; let it do so elsewhere."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def naive_lens_contexts(
    logits: Tensor,
    values: Tensor,
    anchors: Tensor,
    visible: Tensor,
    beta: Tensor,
    n_lenses: int,
    boost: Any,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """The lenses as their equations are written: K softmaxes over a [B, H, q, K, T] tensor (form `scaled`)."""
    from recbole_prism.model.layers.lens import boost_signal

    groups = nn.functional.one_hot(anchors, n_lenses).to(logits.dtype)  # [B, T, K]
    signal = torch.exp(beta) * boost_signal(logits, groups, visible, boost)  # [B, H, q, K]
    mask = groups.transpose(1, 2)[:, None, None]  # [B, 1, 1, K, T]
    boosted = logits[:, :, :, None] + signal[..., None] * mask
    weights = torch.softmax(boosted.masked_fill(~visible[:, :, :, None], torch.finfo(logits.dtype).min), dim=-1)
    return torch.matmul(dropout(weights), values[:, :, None])


@contextmanager
def naive_lens() -> Iterator[None]:
    """Let PRISM modules compute their lenses the naive way."""
    from recbole_prism.model.layers import prism

    before = prism.lens_contexts
    prism.lens_contexts = naive_lens_contexts
    try:
        yield
    finally:
        prism.lens_contexts = before


def under(context: Callable[[], Any], call: Callable[[], Any]) -> Callable[[], Any]:
    """`call` inside of a context manager."""

    def inside() -> Any:
        with context():
            return call()

    return inside


# ---- memory


def peak_of_step(step: Callable[[], Any]) -> int:
    """Largest number of bytes allocated during a call above what was there before it, as torch's allocator sees it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    level = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


# ---- arguments and output


def parser(description: Optional[str]) -> argparse.ArgumentParser:
    parsed = argparse.ArgumentParser(
        description=(description or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parsed.add_argument("--data_path", type=Path, default=None, help="folder that holds <dataset>/<dataset>.inter")
    parsed.add_argument("--threads", type=int, default=1, help="torch threads")
    parsed.add_argument("--device", default="cpu", help="cpu or cuda")
    parsed.add_argument("--output", type=Path, default=RESULTS, help="folder of the .md and .json files")
    return parsed


def parse(parsed: argparse.ArgumentParser) -> argparse.Namespace:
    arguments = parsed.parse_args()
    if arguments.data_path is not None:
        arguments.data_path = arguments.data_path.resolve()
    arguments.output = arguments.output.resolve()
    torch.set_num_threads(arguments.threads)
    return arguments


def circumstances(arguments: argparse.Namespace) -> dict[str, Any]:
    """Versions, machine, threads, date and command: what a number needs beside it. No path of the machine."""
    packages = ("torch", "recbole", "numpy", "pandas")
    values = {key: value for key, value in vars(arguments).items() if key not in ("data_path", "output")}
    return {
        "date": datetime.date.today().isoformat(),
        "command": f"python benchmarks/{Path(sys.argv[0]).name}",
        "arguments": values,
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        **({"gpu": torch.cuda.get_device_name()} if arguments.device.startswith("cuda") else {}),
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; floats with three significant digits."""

    def cell(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = [header, ["---"] * len(header), *[[cell(value) for value in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(arguments: argparse.Namespace, name: str, title: str, text: str, values: dict[str, Any]) -> None:
    """Print, and write <output>/<name>.md and .json."""
    about = circumstances(arguments)
    note = ", ".join(f"{key} {value}" for key, value in about.items() if key not in ("arguments", "command"))
    options = " ".join(f"--{k} {shlex.join(map(str, v)) if isinstance(v, list) else v}"
                       for k, v in about["arguments"].items() if v is not None)  # fmt: skip
    page = f"# {title}\n\n`{about['command']} --data_path ... {options}`\n\n{note}.\n\n{text}\n"
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / f"{name}.md").write_text(page, encoding="utf-8")
    (arguments.output / f"{name}.json").write_text(json.dumps({**about, **values}, indent=1), encoding="utf-8")
    print(page)

"""The command line: `recbole-prism VERB`, `python -m recbole_prism VERB`, `python run_recbole_prism.py` (the verb run).

Arguments are read and results printed here. A verb is one line in VERBS; its module is imported when the verb is used.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from typing import Any, Mapping, Optional, Sequence

from recbole_prism import __version__, registry, schema, settings_files
from recbole_prism.errors import ConfigError, RecBolePrismError
from recbole_prism.progress import ConsoleHandler

VERBS: Mapping[str, tuple[str, str]] = {  # verb -> (module:function of the arguments after the verb, what it does)
    "run": ("recbole_prism.cli:run_command", "train, evaluate and save one model"),
    "prepare": ("recbole_prism.data_cli:prepare_main", "make a data set's atomic file from its raw file"),
    "describe": ("recbole_prism.data_cli:describe_main", "print what a data set holds"),
    "queue": ("recbole_prism.experiments_cli:queue_main", "make the runs that a file lists; stopped and gone on with"),
    "benchmark": ("recbole_prism.experiments_cli:benchmark_main", "run models side by side and make the tables"),
    "compare": ("recbole_prism.experiments_cli:compare_main", "is A better than B: paired tests over rows and seeds"),
    "slim": ("recbole_prism.experiments_cli:slim_main", "copy runs without weights, for a repository"),
    "reproduce": (
        "recbole_prism.reproduce_cli:reproduce_main",
        "tables and figures of the paper from our own runs",
    ),
    "tune": ("recbole_prism.tuning_cli:tune_main", "search for settings with Ray Tune"),
    "doctor": (
        "recbole_prism.doctor:doctor_command",
        "print versions, devices, threads and what is missing for which feature",
    ),
}
_FLAGS = ("overwrite", "help")  # options of `run` that take no value
_QUICK = {"model": "PRISM", "dataset": "ml-100k", "recipe": "PRISM"}

_RUN_HELP = """usage: recbole-prism run --model=NAME --dataset=NAME [--key=value ...]      (or --key value)
       recbole-prism run                      a quick look: PRISM on ml-100k with its quick recipe

  --model=NAME            {models}
                          recbole:X (RecBole's own class), my.module:MyModel (a class with `config_defaults`)
  --dataset=NAME          data_path (default dataset/) holds its file NAME/NAME.inter; ml-100k comes with RecBole
  --config_files="A B"    settings files, the last one strongest
  --recipe=NAME           tuned settings for this data set: properties/recipe/<dataset>/NAME.yaml
  --overwrite             replace a complete run of the same settings
  --key=value             any setting of RecBole, properties/overall.yaml or properties/model/NAME.yaml, as YAML:
                          --epochs=5 --topk=[10,20] --train_neg_sample_args=~ --eval_args="{{order: TO}}\""""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one verb.

    Args:
        argv: Arguments without the program's name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 the output could not be written, 2 an error that its message explains, 130 interrupted,
        141 nobody reads the output any more (`| head`).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _main(arguments)
    except OSError:
        lost = _lost_output("\n")  # something to write: an unbuffered stream has nothing left to flush
        if lost is None:
            raise
        return lost
    lost = _lost_output()
    return status if lost is None else lost


def _lost_output(text: str = "") -> Optional[int]:
    """Write what is buffered, and `text`; the exit status if that fails, without the traceback at Python's end."""
    if sys.stdout is None:  # closed by the caller
        return None
    try:
        print(text, end="", flush=True)
        return None
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141  # as a shell reports it: 128 + SIGPIPE
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] == "--version":
        print(f"recbole-prism {__version__}")
        return 0
    try:
        return _handler(arguments[0])(arguments[1:])
    except RecBolePrismError as error:
        print(f"error: {error.cause}", file=sys.stderr)
        if error.cure:
            print(f"  -> {error.cure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped. The same command goes on after the last finished epoch.", file=sys.stderr)
        return 130


def parse_command_line(argv: Sequence[str]) -> dict[str, Any]:
    """Arguments as settings: `--key=value` or `--key value`, the value being YAML (or text, where the key wants text).

    Args:
        argv: Arguments without program name and verb.

    Returns:
        Key -> value; `overwrite` and `help` are True if given.

    Raises:
        ConfigError: An argument has another form, lacks its value, or contradicts an earlier one.
    """
    settings: dict[str, Any] = {}
    value: Any
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        key, has_value, text = argument[2:].partition("=")
        if argument in ("-h", "--help"):
            key, value = "help", True
        elif not re.fullmatch(r"--[A-Za-z_][\w-]*", argument.partition("=")[0]):
            raise ConfigError(f"cannot read the argument {argument!r}", _right_form(argument))
        elif key in _FLAGS and not has_value:
            value = True
        else:
            if not has_value:
                if not rest or rest[0].startswith("--"):
                    raise ConfigError(f"--{key} has no value", f"write --{key}=VALUE")
                text = rest.pop(0)
            value = text if key in ("config_files", "recipe") else _parsed(key, text)
        if key in settings and settings[key] != value:
            raise ConfigError(f"--{key} is given twice: {settings[key]!r} and {value!r}", "leave one of them out")
        settings[key] = value
    return settings


def _parsed(key: str, text: str) -> Any:
    return settings_files.parse_text(text) if schema.is_text(key) else settings_files.parse_value(text)


def run_command(argv: Sequence[str]) -> int:
    """The verb `run`."""
    settings = parse_command_line(argv)
    if settings.pop("help", False):
        print(_RUN_HELP.format(models=", ".join(registry.list_models())))
        return 0
    if not settings:
        settings = dict(_QUICK)
        print("No arguments: PRISM on ml-100k with its quick recipe, a first look in minutes.")
        print("The same as --model=PRISM --dataset=ml-100k --recipe=PRISM; without --recipe it takes far longer.")
    overwrite = settings.pop("overwrite", False)
    if not isinstance(overwrite, bool):
        raise ConfigError(f"--overwrite={overwrite}", "write --overwrite without a value")
    files = settings.pop("config_files", "").split()
    recipe = settings.pop("recipe", None)
    if recipe is not None:
        if not isinstance(settings.get("dataset"), str):
            raise ConfigError("--recipe belongs to a data set, and none is named", "add --dataset=NAME")
        files.insert(0, str(settings_files.recipe_path(settings["dataset"], recipe)))
    if ":" in str(settings.get("model", "")) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a console script does not look for my_module.py where it is called
    log_to_terminal()
    from recbole_prism import quick_start

    print(format_result(quick_start.run(config_file_list=files, command_line=settings, overwrite=overwrite)))
    return 0


def format_result(result: Mapping[str, Any]) -> str:
    """The table of a run's test metrics, with the line for the other way of counting seen items.

    Args:
        result: What `quick_start.run` returns.
    """
    masked, unmasked = result["test_result_masked"], result["test_result_unmasked"]
    main_is_masked = result["test_result"] == masked
    main, other = ("removed", "left in") if main_is_masked else ("left in", "removed")
    lines = ["", f"{result['model']} on {result['dataset']}, test rows, all items ranked, seen items {main}"]
    lines += _table(result["test_result"])
    others = (unmasked if main_is_masked else masked).items()
    lines.append(f"seen items {other}: " + "  ".join(f"{_shown(name)} {value:.4f}" for name, value in others))
    if result["run_directory"]:
        lines.append(f"{'read from' if result['reused'] else 'saved in'} {result['run_directory']}")
    return "\n".join(lines)


def _table(metrics: Mapping[str, float]) -> list[str]:
    names = list(dict.fromkeys(metric.split("@")[0] for metric in metrics))
    cutoffs = sorted({int(metric.split("@")[1]) for metric in metrics})
    lines = [" " * 20 + "".join(f"@{k}".rjust(9) for k in cutoffs)]
    for name in names:
        cells = [metrics.get(f"{name}@{k}") for k in cutoffs]
        lines.append(_shown(name).ljust(20) + "".join(("" if c is None else f"{c:.4f}").rjust(9) for c in cells))
    return lines


def _shown(metric: str) -> str:
    name, at, k = metric.partition("@")
    return {known.lower(): known for known in schema.SUPPORTED_METRICS}.get(name, name) + at + k


def _right_form(argument: str) -> str:
    name, has_value, _ = argument.lstrip("-").partition("=")
    return (
        f"write --{argument.lstrip('-')}" if has_value and name.isidentifier() else "write --key=value or --key value"
    )


def _handler(verb: str) -> Any:
    if verb not in VERBS:
        guess = registry.nearest(verb, VERBS)
        cure = f"did you mean {guess}?" if guess else f"one of {', '.join(VERBS)}"
        raise ConfigError(f"unknown verb {verb!r}", cure)
    module, _, function = VERBS[verb][0].partition(":")
    return getattr(importlib.import_module(module), function)


def _help() -> str:
    verbs = "\n".join(f"  {verb:<12}{meaning}" for verb, (_, meaning) in VERBS.items())
    return f"usage: recbole-prism VERB [options]; VERB --help tells more\n\n{verbs}\n  --version   print the version"


def log_to_terminal() -> None:
    """Show the package's log on the terminal."""
    logger = logging.getLogger("recbole_prism")
    if not logger.handlers:
        handler = ConsoleHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)

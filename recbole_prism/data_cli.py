"""The verbs `prepare` and `describe` of the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

from recbole_prism.data.columns import TIME_UNITS
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data.describe import describe, description_lines, user_lines
from recbole_prism.data.describe_picture import save_picture
from recbole_prism.data.leakage import leakage_checks, leakage_lines
from recbole_prism.data.manifest import report_lines
from recbole_prism.data.prepare import Plan, Prepared, config_with_data, execute, prepare_known
from recbole_prism.data.readers import table_by_suffix
from recbole_prism.data.sources import known_sources, load_source
from recbole_prism.errors import ConfigError, DataError
from recbole_prism.schema import is_text
from recbole_prism.settings_files import parse_text, parse_value

_OWN = ("user", "item", "time")


def prepare_main(argv: Sequence[str]) -> int:
    """`recbole-prism prepare NAME` and `recbole-prism prepare --from FILE --user U --item I --time T --name NAME`.

    Args:
        argv: Arguments after the verb.

    Returns:
        Exit code.

    Raises:
        DataError: See the message.
    """
    args = _prepare_parser().parse_args(list(argv))
    if args.list:
        _say([f"{name:<26} {load_source(name).title}" for name in known_sources()])
        return 0
    prepared = _prepare_own(args) if args.own_file is not None else _prepare_by_name(args)
    if prepared.path is None:
        _say([f"{args.name_or_none} comes with RecBole: there is nothing to prepare"])
        return 0
    _say(
        [
            *report_lines(prepared.manifest),
            f"{'up to date ' if prepared.was_current else 'file       '} {prepared.path}",
        ]
    )
    return 0


def describe_main(argv: Sequence[str]) -> int:
    """`recbole-prism describe NAME`: statistics, histograms and leakage checks; `--user U`: every row of that user.

    Args:
        argv: Arguments after the verb. `--key=value` sets any setting of `run`, e.g. --eval_args or --data_path.

    Returns:
        Exit code: 0, or 1 if a leakage check fails.

    Raises:
        RecBolePrismError: See the message.
    """
    parser = argparse.ArgumentParser(
        prog="recbole-prism describe",
        description="Show what is in a data set and how it is split; --key=value sets any setting of `run`.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the data set")
    parser.add_argument("--user", help="print every row of this user instead: part, history and target")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw the histograms (.png, .pdf, .svg)")
    parser.add_argument("--config_files", default="", help="settings files, separated by spaces")
    args, rest = parser.parse_known_args(list(argv))
    # any model of ours will do: the split does not depend on it
    config = config_with_data("SASRec", args.name, args.config_files.split(), command_line=dict(map(setting_of, rest)))
    dataset = SequentialDataset(config)
    parts = dataset.build()
    if args.user is not None:
        _say(user_lines(parts, args.user))
        return 0
    found, checks = describe(dataset, parts), leakage_checks(dataset, parts)
    _say([*description_lines(args.name, found), "", *leakage_lines(checks, parts)])
    if args.picture is not None:
        save_picture(args.name, found, args.picture)
        _say([f"picture: {args.picture}"])
    return int(any(check.broken for check in checks))


def setting_of(argument: str) -> tuple[str, Any]:
    key, equals, value = argument.partition("=")
    if not key.startswith("--") or not equals:
        raise ConfigError(f"cannot read the argument {argument!r}", "write settings as --key=value")
    return key[2:], parse_text(value) if is_text(key[2:]) else parse_value(value)


def _say(lines: list[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


def _prepare_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recbole-prism prepare", description="Make an atomic file from a raw file.", allow_abbrev=False
    )
    parser.add_argument("name_or_none", metavar="NAME", nargs="?", help="a known data set, see --list")
    parser.add_argument("--list", action="store_true", help="show the known data sets")
    parser.add_argument(
        "--raw", type=Path, help="its raw file, or the folder with it (default: <data_path>/NAME/raw, else download)"
    )
    parser.add_argument(
        "--from",
        dest="own_file",
        type=Path,
        metavar="FILE",
        help="your own log: .csv .tsv .json .jsonl (also .gz), .parquet",
    )
    for column in _OWN:
        parser.add_argument(f"--{column}", metavar="COLUMN", help=f"column of the {column} in FILE")
    parser.add_argument(
        "--time_unit", choices=tuple(TIME_UNITS), default="s", help="unit of numeric times in FILE (default: s)"
    )
    parser.add_argument(
        "--core", type=int, help="k of the iterated k-core, 0 for none (default: the data set's own; for FILE: 0)"
    )
    parser.add_argument("--name", default="", help="name of the data set to write")
    parser.add_argument(
        "--data_path", type=Path, default=Path("dataset"), help="folder of all data sets (default: dataset)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that was made in another way")
    return parser


def _prepare_by_name(args: argparse.Namespace) -> Prepared:
    if args.name_or_none is None:
        raise DataError(
            "nothing to prepare", f"name a data set ({', '.join(known_sources())}) or your own file: --from FILE"
        )
    given = [f"--{column}" for column in _OWN if getattr(args, column) is not None]
    if given:
        raise DataError(f"{', '.join(given)} without --from", "columns are named for your own file only")
    return prepare_known(
        args.name_or_none,
        args.data_path,
        raw=args.raw,
        core=_core(args),
        new_name=args.name,
        overwrite=args.overwrite,
        show_progress=sys.stderr.isatty(),
    )


def _prepare_own(args: argparse.Namespace) -> Prepared:
    lacking = [f"--{name}" for name in (*_OWN, "name") if not getattr(args, name)]
    if lacking:
        raise DataError(
            f"--from needs {', '.join(lacking)} as well",
            "e.g. --from my.csv --user uid --item asin --time when --name mydata",
        )
    if args.name_or_none is not None or args.raw is not None:
        raise DataError(
            "NAME and --raw are for known data sets, --from is for your own file", "call the new data set with --name"
        )
    table = table_by_suffix(args.own_file, args.user, args.item, args.time, args.time_unit)
    plan = Plan(name=_plain_name(args.name), raw=args.own_file, table=table, core=_core(args) or 0)
    return execute(plan, args.data_path, overwrite=args.overwrite, show_progress=sys.stderr.isatty())


def _plain_name(name: str) -> str:
    if Path(name).name != name or name.startswith("."):
        raise DataError(
            f"{name!r} cannot be the name of a data set",
            "it becomes a folder and a file name: use letters, digits and hyphens",
        )
    return name


def _core(args: argparse.Namespace) -> Optional[int]:
    if args.core is not None and args.core < 0:
        raise DataError(f"--core {args.core} is negative", "0 switches the filter off")
    return args.core

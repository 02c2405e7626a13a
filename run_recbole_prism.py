"""The front door from a checkout: python run_recbole_prism.py --model=PRISM --dataset=ml-100k (see --help)."""

from __future__ import annotations

import sys

from recbole_prism.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))

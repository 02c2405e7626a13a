"""`python -m recbole_prism <verb>`."""

from __future__ import annotations

import sys

from recbole_prism.cli import main

if __name__ == "__main__":
    sys.exit(main())

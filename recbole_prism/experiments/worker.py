"""The process of one run of a queue: `python -m recbole_prism.experiments.worker`.

Its standard input is one line of JSON, the arguments of `quick_start.run`, and stays open: when it closes, because the
queue wants the run to stop or was itself killed, the run is interrupted and can be gone on from.
"""

from __future__ import annotations

import _thread
import json
import logging
import signal
import sys
import threading

from recbole_prism.errors import RecBolePrismError
from recbole_prism.quick_start import run

INTERRUPTED = 130  # exit status, as a shell reports Ctrl-C


def main() -> int:
    """Make one run. Returns the exit status: 0 complete, 2 an explained error, 130 interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may have been started without
    arguments = json.loads(sys.stdin.readline())
    threading.Thread(target=_interrupt_with_the_queue, daemon=True).start()
    logging.getLogger("recbole_prism").setLevel(logging.INFO)
    try:
        run(**arguments)
    except RecBolePrismError as error:
        sys.stderr.write(f"error: {error.cause}\n" + (f"  -> {error.cure}\n" if error.cure else ""))
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _interrupt_with_the_queue() -> None:
    sys.stdin.read()  # returns when the other end is closed
    _thread.interrupt_main()


if __name__ == "__main__":
    raise SystemExit(main())

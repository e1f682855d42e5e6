"""Serves the kind `price.changed` as a command: one process per job, with the standard library alone.

    [kinds."price.changed"]
    exec = ["python3", "price_exec.py", "PRICES_FOLDER"]

The payload comes on standard input, the rest in the environment, and the exit code says what happens next: 0 done, 65
(EX_DATAERR) a dead letter, 75 (EX_TEMPFAIL) tried again; what is written to standard error stays with the error. The last
line of standard output may ask for more: here the price is kept in the queue's own state, and a job is emitted.
"""

import json
import os
import signal
import sys
from pathlib import Path
from urllib.parse import unquote

EX_DATAERR, EX_TEMPFAIL = 65, 75


def main():
    # The node drains, or the soft limit has come: what is not done yet is done elsewhere.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EX_TEMPFAIL))
    try:
        job = json.load(sys.stdin)
        sku, cents = str(job["sku"]), int(job["cents"])
    except (ValueError, KeyError, TypeError) as error:
        print(f'expected {{"sku": text, "cents": number}}: {error!r}', file=sys.stderr)
        return EX_DATAERR
    folder = Path(sys.argv[1])
    if not folder.is_dir():
        print(f"{folder} is not there (yet)", file=sys.stderr)
        return EX_TEMPFAIL
    # Written beside and renamed: done twice it is the same.
    version = os.environ["GRISTMILL_VERSION"]
    key = unquote(os.environ["GRISTMILL_KEY"])
    beside = folder / f".{key}.{os.getpid()}"
    beside.write_text(f"{sku} {version} {cents}\n")
    beside.rename(folder / key)
    print(json.dumps({"gristmill": {"state": {"cents": cents}}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Serves the kind `price.changed` from a process that stays: one line of JSON in, one out. Standard library alone.

    [kinds."price.changed"]
    exec = ["python3", "price_lines.py"]
    exec_form = "lines"
    concurrency = 4            # at most so many processes

Standard output belongs to the answers: whatever else is to be said goes to standard error. Each answer names the id of its
job. The end of standard input is the time to leave.
"""

import json
import sys


def handle(job):
    """What is answered beside the id; nothing at all is `done`."""
    try:
        cents = int(job["payload"]["cents"])
    except (KeyError, TypeError, ValueError) as error:
        return {"outcome": "permanent", "error": f"expected cents: {error!r}"}
    if cents < 0:
        return {"outcome": "transient", "error": "the price is not known yet", "retry_after_ms": 100}
    return {"state": {"cents": cents}}


def main():
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps({"id": job["id"], **handle(job)}), flush=True)


if __name__ == "__main__":
    main()

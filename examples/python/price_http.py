"""Serves the kind `price.changed` over HTTP, with the standard library alone.

    python3 price_http.py DATABASE [PORT] [SECRET_FILE]

and in the settings of a node:

    [kinds."price.changed"]
    http = "http://127.0.0.1:8000/jobs/price"
    secret_file = "SECRET_FILE"

What is to be learned from it:

* A request may come again (a crash, a lost answer). The inbox row and the handler's own write share one transaction, so
  that a job takes effect once.
* Jobs of one key come in order, but what is old may still come late from a producer: strictly newer versions win.
* The status says what happens next: 2xx done, 422 and most of 4xx a dead letter, 503 tried again.
"""

import base64
import hashlib
import hmac
import json
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TABLES = """
CREATE TABLE IF NOT EXISTS inbox (idempotency_key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS price (sku TEXT PRIMARY KEY, version INTEGER NOT NULL, cents INTEGER NOT NULL);
"""
MAX_BYTES = 1 << 20
TOLERANCE_S = 300


class Refused(Exception):
    """No retry helps: the job becomes a dead letter with this text."""


def apply(database, headers, body):
    """One job, once. Returns what was done, in a word."""
    try:
        job = json.loads(body)
        sku, cents = str(job["sku"]), int(job["cents"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f'expected {{"sku": text, "cents": number}}: {error!r}') from error
    version = int(headers["Gristmill-Version"])
    with sqlite3.connect(database, timeout=10) as connection:  # commits, or rolls back at an exception
        connection.execute("BEGIN IMMEDIATE")
        new = connection.execute(
            "INSERT OR IGNORE INTO inbox VALUES (?)", (headers["Idempotency-Key"],)
        ).rowcount
        if not new:
            return "duplicate"
        changed = connection.execute(
            "INSERT INTO price VALUES (?, ?, ?) ON CONFLICT (sku) DO UPDATE"
            " SET version = excluded.version, cents = excluded.cents WHERE excluded.version > price.version",
            (sku, version, cents),
        ).rowcount
        return "applied" if changed else "stale"


def is_ours(secret, headers, body):
    """Whether the request was signed with our secret, and not long ago (Standard Webhooks)."""
    try:
        moment = int(headers["Webhook-Timestamp"])
    except (TypeError, ValueError):
        return False
    if abs(time.time() - moment) > TOLERANCE_S:
        return False
    signed = f"{headers['Webhook-Id']}.{moment}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    given = (headers["Webhook-Signature"] or "").split()
    return any(hmac.compare_digest(expected, signature) for signature in given)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again
    timeout = 30
    database = None
    secret = None

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BYTES:
            self.close_connection = True
            return self.answer(413, "too large")
        body = self.rfile.read(length)
        if self.secret and not is_ours(self.secret, self.headers, body):
            return self.answer(401, "not signed with our secret")
        try:
            done = apply(self.database, self.headers, body)
        except Refused as error:
            return self.answer(422, str(error))
        except sqlite3.OperationalError as error:  # locked, disk full: it will pass
            return self.answer(503, str(error), {"Retry-After": "1"})
        key, attempt = unquote(self.headers["Gristmill-Key"]), self.headers["Gristmill-Attempt"]
        print(f"{done} key={key} version={self.headers['Gristmill-Version']} attempt={attempt}", flush=True)
        return self.answer(200, done)

    def answer(self, status, text, headers=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    Handler.database = sys.argv[1]
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    if len(sys.argv) > 3:
        with open(sys.argv[3], "rb") as file:
            Handler.secret = file.read().strip()
    with sqlite3.connect(Handler.database) as connection:
        connection.executescript(TABLES)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"serving on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""Serves the kind `catalogue.update` over HTTP and keeps its table in Postgres, each job once.

    python3 catalogue.py DATABASE [PORT]          (Debian: apt install python3-psycopg2)

The inbox row, the product and its note commit together; the answer comes after, and may be lost: the job then comes again,
meets its inbox row, and is answered 200 without being done.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import psycopg2

MAX_BYTES = 1 << 20
PUT = """INSERT INTO catalogue (sku, version, cents) VALUES (%s, %s, %s) ON CONFLICT (sku) DO UPDATE
         SET version = excluded.version, cents = excluded.cents WHERE catalogue.version < excluded.version"""
NOTE = "INSERT INTO catalogue_change (sku, version, cents) VALUES (%s, %s, %s)"
INBOX = "INSERT INTO catalogue_inbox (idempotency_key) VALUES (%s) ON CONFLICT DO NOTHING"


def apply(connection, headers, body):
    """One job, once. Returns what was done, in a word; what cannot be read raises ValueError or KeyError."""
    cents = int(json.loads(body)["cents"])
    product = (unquote(headers["Gristmill-Key"]), int(headers["Gristmill-Version"]), cents)
    with connection, connection.cursor() as cursor:  # commits, or rolls back at an exception
        cursor.execute(INBOX, (headers["Idempotency-Key"],))
        if cursor.rowcount == 0:
            return "duplicate"
        cursor.execute(PUT, product)
        if cursor.rowcount == 0:
            return "stale"
        cursor.execute(NOTE, product)
        return "applied"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again
    timeout = 30
    database = None
    mine = threading.local()  # a connection to Postgres for each of the node's

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BYTES:
            self.close_connection = True
            return self.answer(413, "too large")
        body = self.rfile.read(length)
        try:
            if getattr(self.mine, "connection", None) is None:
                self.mine.connection = psycopg2.connect(self.database)
            return self.answer(200, apply(self.mine.connection, self.headers, body))
        except (ValueError, KeyError, TypeError) as error:
            return self.answer(422, repr(error))  # no retry helps: a dead letter
        except psycopg2.Error as error:
            self.mine.connection = None
            # A constraint will be violated again; all else (away, restarted, a deadlock) will pass.
            status = 422 if isinstance(error, (psycopg2.IntegrityError, psycopg2.DataError)) else 503
            return self.answer(status, str(error))

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    Handler.database = sys.argv[1]
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8000), Handler)
    print(f"serving on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

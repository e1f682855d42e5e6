"""Enqueues jobs with a Redis client alone, as docs/PROTOCOL.md lets any language do.

    python3 enqueue.py REDIS_URL QUEUE [--plain] < jobs.jsonl     (Debian: apt install python3-redis python3-msgpack python3-xxhash)

A line is {"id": text, "key": text, "version": number, "kind": text, "payload": any JSON}; with "in_ms": number or "at": Unix ms it
is for later, with "expires_in_ms": number it does not start later than so long after it became ready. Printed for each: the job's place in the queue, `delayed` and what names it until it is due, or `duplicate` and how the first
one of its id stands.

There are two ways. The enqueue script, called by its hash, knows ids that were enqueued before, refuses what is over the
queue's limit, and may be called again when its answer was lost. `--plain` is XADD: nothing to load, and repeats are other jobs.
"""

import json
import sys
import time
import uuid
from pathlib import Path

import msgpack
import redis
import xxhash

# Copy this file to where your producer is.
SCRIPT = Path(__file__).resolve().parents[2] / "crates/gristmill-broker/src/lua/enqueue.lua"
CALL_MARK_MS = 120_000
TRIES = 5


class Refused(Exception):
    """Nothing was enqueued."""


class Producer:
    def __init__(self, client):
        self.client = client
        # Called by its hash, and loaded first where the server does not know it.
        self.script = client.register_script(SCRIPT.read_text())
        self.known = {}

    def partitions(self, queue):
        """How many the queue has; fixed for its life."""
        if queue not in self.known:
            definition = self.client.hget("gm:queues", queue)
            if definition is None:
                raise Refused(f"there is no queue {queue}: a node that serves it makes it")
            self.known[queue] = int(definition.split()[1])
        return self.known[queue]

    def enqueue(self, queue, job):
        """Its place, or `duplicate …`. Raises Refused, or redis.ConnectionError where nobody knows: then call again."""
        prefix, partitions = self.prefix(queue, job["key"])
        # The call has a name, so that its repeat after a lost answer is known as one.
        rooms = ["meta", "stream", f"call:{uuid.uuid4()}", "delayed", "delayed:bodies", "delayed:bell", f"seen:{job['id']}"]
        keys = [f"{prefix}:{room}" for room in rooms]
        due = f"+{job['in_ms']}" if "in_ms" in job else job.get("at", "")
        arguments = [partitions, CALL_MARK_MS, job["id"], job["key"], envelope(job), "1", due]
        for tries_left in reversed(range(TRIES)):
            try:
                answer = [text.decode() for text in self.script(keys, arguments)]
                break
            except (redis.ConnectionError, redis.TimeoutError):
                if not tries_left:
                    raise
                time.sleep(0.2)
        if answer[0] in ("ok", "repeated"):
            return answer[1]
        raise Refused(" ".join(answer))  # no_queue, differs, full, too_far

    def add(self, queue, job):
        """Its place. Repeats are not known, and nothing is for later."""
        if "in_ms" in job or "at" in job:
            raise Refused("a job for later needs the script: leave --plain out")
        prefix, _ = self.prefix(queue, job["key"])
        entry = {"i": job["id"], "k": job["key"], "d": envelope(job, own_id=False)}
        return self.client.xadd(f"{prefix}:stream", entry).decode()

    def prefix(self, queue, key):
        """The start of all keys of the partition that the job's key belongs to."""
        partitions = self.partitions(queue)
        partition = xxhash.xxh64_intdigest(key.encode(), seed=0) % partitions
        return f"gm:{{{queue}:{partition}}}", partitions


def envelope(job, own_id=True):
    fields = {
        "v": 1,
        "t": job["kind"],
        "n": job.get("version", 0),
        "p": json.dumps(job["payload"]).encode(),
        "c": "j",
        "a": int(time.time() * 1000),
        "o": own_id,
    }
    if "expires_in_ms" in job:
        fields["l"] = {"x": job["expires_in_ms"]}
    return msgpack.packb(fields, use_bin_type=True)


def main():
    url, queue, plain = sys.argv[1], sys.argv[2], "--plain" in sys.argv[3:]
    producer = Producer(redis.Redis.from_url(url, socket_timeout=5))
    for line in sys.stdin:
        job = json.loads(line)
        print((producer.add if plain else producer.enqueue)(queue, job), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Refused as error:
        sys.exit(str(error))

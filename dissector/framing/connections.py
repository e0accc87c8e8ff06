"""The tables of framing and correlation: one dialog a connection, two streams each, and what they keep."""

from __future__ import annotations

from collections import namedtuple

from kafkatap.kernels.decorator import record_dtype

#: What a connection turned out to carry.
UNKNOWN, KAFKA, TLS, FOREIGN = range(4)
PROTOCOLS = ("unknown", "kafka", "tls", "not_kafka")

#: One connection. `client` is the direction that sends requests (-1: not known yet).
DIALOG = record_dtype(
    ("serial", "i8"),
    ("previous_response", "i8"),  # first byte's time of the last response; NO_TIME
    ("mute_end", "i8"),  # until when the broker does not read this connection because of a quota; NO_TIME
    # Where the time of the exchange with that response went, latest part first, ns: for what waited behind it.
    ("ahead_late", "i8"),  # its response held back because of a quota
    ("ahead_broker", "i8"),
    ("ahead_mute", "i8"),  # its request not read because of a quota
    ("ahead_hol_wait", "i8"),
    ("ahead_hol_throttle_wait", "i8"),  # two parts of that
    ("ahead_hol_poll_wait", "i8"),
    ("requests", "i8"),
    ("responses", "i8"),
    ("ready", "i8"),  # the packet that completed the first answered exchange, or with which it settled as TLS; 0
    ("settled", "i8"),  # the packet of the SETTLED-th chunk of a connection that is not, or not yet, Kafka; 0
    ("pending_first", "i4"),  # exchanges that wait for their response, in order; -1
    ("pending_last", "i4"),
    ("pending_count", "i4"),
    ("client_id", "i4"),
    ("software", "i4"),
    ("software_version", "i4"),
    ("mechanism", "i4"),
    ("tls_records", "i4"),
    ("unknown_chunks", "i4"),  # chunks of a connection that is not, or not yet, Kafka; no more are counted then
    ("client", "i1"),
    ("protocol", "u1"),
    ("raw_sasl", "u1"),  # after SaslHandshake v0: frames are bare tokens until a request header is seen again
    ("ahead_polls", "u1"),  # 1: its broker time was a wait for data or for other members of a group
    ("answers_at_once", "i1"),  # KIP-219: 1 the broker mutes after its response, 0 it answers late, -1 not known
    ("open", "u1"),
)

#: How a stream's bytes are read: as frames one behind the other; or in search of the next frame's start.
SYNCED, SEARCHING, ANCHORED = range(3)  # ANCHORED: the first byte of a connection, where a frame has to start
#: How far the current frame of a synced stream is believed. A later frame may contradict one that was found by its
#: first bytes alone, where a segment starts (FIRM) or inside of one (LOOSE). CHECK: it is over, the next header tells.
CERTAIN, FIRM, LOOSE, CHECK = range(4)

#: One direction. While synced, the buffer holds what is captured of the current frame from its first byte on; while
#: searching, all bytes in which a frame's start may still be.
STREAM = record_dtype(
    ("buffer", "i8"),
    ("used", "i8"),
    ("frame_size", "i8"),  # length of the current frame with its size field; 0: size field not read yet
    ("kept", "i8"),  # how many of its bytes, from the first on, are wanted
    ("have", "i8"),  # bytes of it that went by
    ("first", "i8"),
    ("packet_first", "i8"),
    ("seen", "i8"),  # bytes of it that packets carried (all but gaps)
    ("searched", "i8"),  # bytes looked at in vain
    ("retry", "i8"),  # while a candidate waits for more bytes: how many are worth another look
    ("losses", "i8"),  # gaps and losses of sync so far
    ("frame_bytes", "i8"),
    ("token_bytes", "i8"),
    ("skipped_bytes", "i8"),
    ("gap_bytes", "i8"),
    ("capacity", "i4"),  # of the buffer: size class, -1 none
    ("marks_first", "i4"),
    ("marks_last", "i4"),
    ("mode", "u1"),
    ("broken", "u1"),  # the buffer misses bytes of the current frame that went by
    ("doubt", "u1"),  # CERTAIN, FIRM, LOOSE, CHECK
)

#: A piece of a search buffer: bytes of one chunk. `fresh`: it starts where the chunk (so the segment) starts.
MARK = record_dtype(
    ("offset", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("wire", "i8"),
    ("captured", "i4"),
    ("next", "i4"),
    ("fresh", "u1"),
)

#: Beside each open exchange: its place in the queue of its connection.
LINK = record_dtype(
    ("losses", "i8"),  # the response stream's losses when the request came
    ("dialog", "i4"),
    ("next", "i4"),
    ("name", "i4"),  # group or transactional id of the request; -1
    ("parts", "i4"),  # partitions of a Produce request; -1
    ("no_reply", "u1"),
    ("token", "u1"),
    ("offered", "i1"),  # what an ApiVersions response told: 1 a broker with KIP-219, 0 an older one, -1 nothing
    ("provisional", "u1"),  # 1 + the outcome under which a provisional row of it was given; 0: none was
)

#: Bytes that come to a stream at once: a chunk, or a part of a search buffer that is read again.
PIECE = record_dtype(
    ("at", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("wire", "i8"),
    ("captured", "i4"),
    ("source", "i4"),
    ("fresh", "u1"),
    ("kind", "u1"),
)

#: An interned string: where its bytes lie in the text array.
STRING = record_dtype(("at", "i8"), ("hash", "i8"), ("length", "i4"))

#: What reassembly emits (see there), declared again so that neither package needs the other. The `opening` of a START
#: says how the client is known: OPENING_SYN, so the first bytes follow; OPENING_HINT, only the direction is known;
#: OPENING_RESUMED, the dialog's row holds already what an earlier run showed of the connection.
CHUNK = record_dtype(
    ("at", "i8"),
    ("ts", "i8"),
    ("packet", "i8"),
    ("length", "i8"),
    ("captured", "i4"),
    ("connection", "i4"),
    ("direction", "u1"),
    ("kind", "u1"),
    ("source", "u1"),
    ("opening", "u1"),
)
DATA, HOLE, START, END = range(4)
OPENING_UNKNOWN, OPENING_SYN, OPENING_HINT, OPENING_RESUMED = range(4)
#: Chunks after which a connection that is not known to be Kafka counts as settled.
SETTLED = 16

#: Where a frame's bytes lie: the block, reassembly's held bytes, or our own pool.
BLOCK, HELD, POOL = range(3)

#: State (int64): counters and free lists of the tables, then the ledger's counts of frames.
(
    STOPPED, JOBS, DONE, FREE_EXCHANGES, NEXT_EXCHANGE, POOL_TOP, FREE_MARKS, STRINGS, TEXT, DEFERRED, LIVE_BUFFERS,
    FREE_MARKS_LEFT, SEED, MAX_FRAME, SHED_FRAME, POOL_DIRTY, POOL_LISTS,
) = range(17)  # fmt: skip
#: MAX_FRAME: of a longer frame only HEAD_KEPT leading bytes are kept. SHED_FRAME: no more than that is kept of any.
#: POOL_DIRTY: bytes of free buffers that may take memory.
HEAD_KEPT = 1 << 16
#: Free lists of the pool: one for each size class 2^6 … 2^40.
SMALLEST_CLASS, CLASSES = 6, 34
COUNTS = POOL_LISTS + CLASSES + 1
(
    REQUESTS, RESPONSES, REQUEST_TOKENS, RESPONSE_TOKENS, REQUESTS_HEADERLESS, RESPONSES_HEADERLESS, ANSWERED_COUNT,
    NO_REPLY_COUNT, UNANSWERED_COUNT, LOST_COUNT, ORPHANS, RESYNCS, UNFINISHED,
) = range(COUNTS, COUNTS + 13)  # fmt: skip
STATE_SIZE = COUNTS + 16

#: Why the kernel stopped: `CONTINUE_ALL` when every chunk was taken.
ALL_TAKEN, JOBS_FULL, EXCHANGES_FULL, POOL_FULL, MARKS_FULL, STRINGS_FULL, TEXT_FULL, DONE_FULL, DEFERRED_FULL = range(
    9
)

#: Free marks that must be left before a chunk is taken.
MARKS_ROOM = 1_024

#: All that framing works on, handed from helper to helper as one.
Tables = namedtuple(
    "Tables",
    "block held pool dialogs streams marks exchanges links free done jobs strings text buckets code index tape scratch "
    "deferred pieces state",
)

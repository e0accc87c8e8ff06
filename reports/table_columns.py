"""The columns of tables that are not made of rows of one dtype, and what all declared columns have.

Types: int8 to int64, string, bool, binary, TIME and TIME_MS, and the lists LIST_BUCKETS, LIST_ERRORS, LIST_HEADERS and
LIST_STRING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafkatap.dissector.dtypes import LIST_STRING, TOPIC_DOC
from kafkatap.kernels.column_spec import TIME_TYPE

LIST_BUCKETS = "list<struct<le:int64,count:int64>>"
LIST_HEADERS = "list<struct<key:string,value:binary>>"
TIME, TIME_MS = TIME_TYPE, "timestamp[ms, UTC]"


class Declared(Protocol):
    """A column of a table: a TableColumn, or a ColumnSpec if the table is made of rows."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def doc(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`doc`: its meaning, as in the documents; "" for tables that only kafkatap reads."""

    name: str
    type: str
    doc: str = ""
    nullable: bool = False


FILES = (
    TableColumn("path", "string", "path; `-` is standard input"),
    TableColumn("kind", "string", "pcap or pcapng, with its compression"),
    TableColumn("first_packet", "int64", "number of its first packet"),
    TableColumn("packets", "int64", "number of its packets"),
    TableColumn("bytes", "int64", "size after decompression"),
    TableColumn("link_types", LIST_STRING, "[link types](layers.md) of its packets"),
    TableColumn("first", TIME, "time of the earliest and of the latest packet", True),
    TableColumn("last", TIME, "time of the earliest and of the latest packet", True),
    TableColumn("drops", "int64", "packets that were dropped during capture, if the file records them", True),
    TableColumn("damage", "string", "what cannot be read, why, and the byte offset", True),
)
LEDGER = (
    TableColumn("section", "string", "packets, payload bytes, requests, responses, tunnels or limits"),
    TableColumn("part", "string", "answered, retransmitted and so on; the parts of a section add up to its `total`"),
    TableColumn("count", "int64", "packets, bytes, requests or responses in the part"),
)
RECORDS = (
    TableColumn("exchange", "int64", "key in `exchanges`"),
    TableColumn("direction", "string", "produce or fetch"),
    TableColumn("message_first", TIME, "arrival of the first byte of its request or response", True),
    TableColumn("packet", "int64", "packet with that byte"),
    TableColumn("client_id", "string", "client_id", True),
    TableColumn("topic", "string", TOPIC_DOC, True),
    TableColumn("topic_id", "string", "id of the topic, if the message has no name", True),
    TableColumn("partition", "int32", "partition", True),
    TableColumn("batch", "int32", "its batch within the exchange, from 0; with magic 0 and 1, a top-level message"),
    TableColumn("magic", "int8", "record format: 0, 1 or 2", True),
    TableColumn("codec", "string", "none, gzip, snappy, lz4, zstd", True),
    TableColumn("offset", "int64",
                "offset in the message; of a batch that cannot be decoded, the first, if it is known", True),
    TableColumn("offset_is_relative", "bool", "true for produced records: `offset` counts within the batch"),
    TableColumn("timestamp", TIME_MS, "timestamp of the record, or its append time; null with magic 0, and outside the "
                "years 1 to 9999", True),
    TableColumn("timestamp_type", "string", "create or log_append; null with magic 0", True),
    TableColumn("key", "binary", "the record's key", True),
    TableColumn("value", "binary", "the record's value; null: a tombstone", True),
    TableColumn("headers", LIST_HEADERS, "headers (magic 2)"),
    TableColumn("is_control", "bool", "a marker that Kafka wrote"),
    TableColumn("control_type", "string", "abort, commit, leader_change, snapshot_header, snapshot_footer, "
                "kraft_version, kraft_voters, or a number", True),
    TableColumn("is_aborted", "bool", "in a transaction that was aborted; null if the response has no list of these "
                "(READ_UNCOMMITTED)", True),
    TableColumn("is_before_fetch_offset", "bool", "below the offset that the request fetches from, so consumers drop "
                "it; null if the request has none, as in fetch sessions", True),
    TableColumn("is_transactional", "bool", "in a transaction"),
    TableColumn("producer_id", "int64", "id of an idempotent or transactional producer", True),
    TableColumn("producer_epoch", "int16", "epoch of that producer", True),
    TableColumn("sequence", "int32", "sequence number for that producer and partition", True),
    TableColumn("partition_leader_epoch", "int32", "leader epoch of its batch", True),
    TableColumn("crc_ok", "bool",
                "whether the CRCs of the batch, and of a message within it, are right; null if it is incomplete", True),
    TableColumn("status", "string", "ok, not_captured (the capture lacks bytes of it), cut_off (its connection or the "
                "capture ended), malformed, trailing_bytes, corrupt (cannot be decompressed to its end), too_large "
                "(decompressed), unknown_codec, unknown_magic, nested (a compressed message inside of others that is "
                "damaged or too deep)"),
)  # fmt: skip

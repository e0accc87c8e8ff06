"""The columns of tables that are not made of rows of one dtype, and what all declared columns have.

Types: int8 to int64, string, bool, binary, TIME and TIME_MS, and the lists LIST_BUCKETS, LIST_ERRORS, LIST_HEADERS and
LIST_STRING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafkatap.dissector.dtypes import LIST_STRING
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
    TableColumn("path", "string", "path of the capture; `-` is standard input"),
    TableColumn("kind", "string", "pcap or pcapng, with its compression"),
    TableColumn("first_packet", "int64", "number of its first packet, counted over all files"),
    TableColumn("packets", "int64", "packets in the file"),
    TableColumn("bytes", "int64", "size after decompression"),
    TableColumn("link_types", LIST_STRING, "[link types](layers.md) of its packets"),
    TableColumn("first", TIME, "time of its earliest packet", True),
    TableColumn("last", TIME, "time of its latest packet", True),
    TableColumn(
        "drops", "int64",
        "packets that were dropped during capture; null if the file does not record them", True,
    ),
    TableColumn("damage", "string", "the part that cannot be read, the reason, and the byte offset", True),
)  # fmt: skip
LEDGER = (
    TableColumn("section", "string", "packets, payload bytes, requests, responses, tunnels or limits"),
    TableColumn(
        "part", "string",
        "the part (answered, retransmitted and so on); the parts of a section add up to its `total`",
    ),
    TableColumn("count", "int64", "number of packets, bytes, requests or responses in the part"),
)  # fmt: skip
RECORDS = (
    TableColumn("exchange", "int64", "key of the exchange, in `exchanges`"),
    TableColumn("direction", "string", "produce or fetch"),
    TableColumn("message_first", TIME, "arrival of the first byte of the request or response that contains it", True),
    TableColumn("packet", "int64", "number of the packet with the first byte of that request or response"),
    TableColumn("client_id", "string", "client_id of the client that sent or received it", True),
    TableColumn("topic", "string", "name of the topic, or its id if the name is unknown", True),
    TableColumn("topic_id", "string", "id of the topic, if the message contains the id and not the name", True),
    TableColumn("partition", "int32", "number of the partition", True),
    TableColumn(
        "batch", "int32",
        "number of its batch within the exchange, from 0; with magic 0 and 1, a batch is a top-level message",
    ),
    TableColumn("magic", "int8", "version of the record format: 0, 1 or 2", True),
    TableColumn("codec", "string", "none, gzip, snappy, lz4, zstd", True),
    TableColumn("offset", "int64", "offset in the message; for a batch that cannot be decoded, its first offset", True),
    TableColumn(
        "offset_is_relative", "bool",
        "true for produced records: `offset` counts within the batch, and the broker assigns the final offset",
    ),
    TableColumn(
        "timestamp", TIME_MS,
        "timestamp of the record, or the append time if the topic is configured so; null with magic 0, and for "
        "values outside the years 1 to 9999", True,
    ),
    TableColumn("timestamp_type", "string", "create or log_append; null with magic 0", True),
    TableColumn("key", "binary", "key of the record, or null", True),
    TableColumn("value", "binary", "value of the record, or null (a tombstone)", True),
    TableColumn("headers", LIST_HEADERS, "headers of the record (magic 2), or `[]`"),
    TableColumn("is_control", "bool", "true for a control record, which is a marker that Kafka wrote"),
    TableColumn(
        "control_type", "string",
        "type of the marker: abort, commit, leader_change, snapshot_header, snapshot_footer, kraft_version, "
        "kraft_voters, or the type's number", True,
    ),
    TableColumn("is_transactional", "bool", "true for a record in a transaction"),
    TableColumn("producer_id", "int64", "id of an idempotent or transactional producer", True),
    TableColumn("producer_epoch", "int16", "epoch of that producer", True),
    TableColumn("sequence", "int32", "sequence number of the record for that producer and partition", True),
    TableColumn("partition_leader_epoch", "int32", "leader epoch of its batch", True),
    TableColumn("crc_ok", "bool", "true if the CRC of the batch is right; null if the batch is incomplete", True),
    TableColumn(
        "status", "string",
        "ok; not_captured (the capture cut off the batch), malformed, trailing_bytes, corrupt (cannot be "
        "decompressed to its end), too_large (decompressed size above the limit), unknown_codec, unknown_magic, "
        "nested (a compressed message inside a compressed one)",
    ),
)  # fmt: skip

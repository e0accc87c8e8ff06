"""The tables of connections and streams, and the states that they go through.

A connection's `protocol`:

    PROTOCOL_UNKNOWN   until its bytes show what it carries
      → KAFKA          `detection.detect_protocol`: the first request decodes, or the broker answers it
                       `chunks`: a search finds a frame
      → TLS            `detection.detect_protocol`: the client's first bytes are a TLS handshake
                       `chunks`: three TLS records pass while a stream is searched
      → FOREIGN        `detection.detect_protocol`: the first bytes are not Kafka
    PROTOCOL_FOREIGN   `is_second_look` is set, and the streams are STREAM_AT_START again
      → UNKNOWN        `detection.begin_look`: a request seems to start with a chunk
    KAFKA and TLS stay until the connection ends.

A stream's `mode`, one for each direction:

    STREAM_AT_START    the connection's first byte comes next, and a frame has to start with it
      → IN_SYNC        `chunks`: the connection is Kafka; or the other stream is, and this one has no bytes yet
      → RESYNC         `chunks`: a gap comes first
                       `detection.detect_protocol`: the first bytes do not suffice
    STREAM_IN_SYNC     each frame starts where the one before it ends
      → RESYNC         `frames.read_frames`: a size field is missing, or the frame there makes no sense
    STREAM_RESYNC      the next boundary is unknown; the bytes are kept and searched
      → IN_SYNC        `chunks`: `resync.find_frame` finds a frame in them

A synced stream's `doubt` says how its current frame was found:

    DOUBT_NONE         by the frame before it, or confirmed by its body or its answer
    DOUBT_AT_SEGMENT   by its header alone, where a segment starts
    DOUBT_IN_SEGMENT   by its header alone, inside a segment
    DOUBT_NEXT         a doubtful frame is over: the next header has to make sense
      AT_SEGMENT, IN_SEGMENT → NEXT   `frames.read_frames`: the frame is complete
      NEXT → NONE                     `frames.read_frames`: the next header makes sense
      AT_SEGMENT, IN_SEGMENT → NONE, AT_SEGMENT   `frames.drop_contradicted_frame`: a segment within it starts a frame
"""

from __future__ import annotations

from kafkatap.kernels.decorator import helper, record_dtype

from ..dtypes import NO_TIME

PROTOCOL_UNKNOWN, PROTOCOL_KAFKA, PROTOCOL_TLS, PROTOCOL_FOREIGN = range(4)
STREAM_IN_SYNC, STREAM_RESYNC, STREAM_AT_START = range(3)
DOUBT_NONE, DOUBT_AT_SEGMENT, DOUBT_IN_SEGMENT, DOUBT_NEXT = range(4)

#: How a broker throttles: it holds the response back; it answers at once, and then does not read the connection, as its
#: versions show; a response that came early proves this; the versions show it, but a request was read meanwhile.
AT_ONCE_UNKNOWN, ANSWERS_LATE, AT_ONCE, AT_ONCE_PROVEN, AT_ONCE_IN_DOUBT = range(-1, 4)

#: Chunks after which a connection that is not known to be Kafka counts as something else.
NOT_KAFKA_AFTER = 16

#: Answers that are tried as the head of a connection.
HEAD_TRIES = 8

#: One connection. Strings are numbers of interned strings, -1 for none.
CONNECTION = record_dtype(
    ("serial", "i8"),  # its number in this run
    ("key", "i8"),  # the same in every run
    ("ends", "i8"),  # the key of its ends
    ("previous_response", "i8"),  # time of the last response's first byte; NO_TIME
    ("mute_end", "i8"),  # until then the broker does not read this connection because of a quota; NO_TIME
    # The time of the exchange with that response by its causes, the latest first, in ns. A request that waited behind
    # it is charged by them.
    ("ahead_late", "i8"),  # its response was held back because of a quota
    ("ahead_broker", "i8"),
    ("ahead_mute", "i8"),  # its request was not read because of a quota
    ("ahead_hol_wait", "i8"),
    ("ahead_hol_throttle_wait", "i8"),  # four parts of that
    ("ahead_hol_poll_wait", "i8"),
    ("ahead_hol_unknown_wait", "i8"),
    ("ahead_hol_loss_wait", "i8"),
    ("ahead_missing", "i8"),  # its response was lost, or waited behind a loss
    ("ahead_arrived", "i8"),  # when its request was whole at the broker; NO_TIME
    ("mute_begin", "i8"),  # when the windows that end then began, one after the other
    ("mute_sum", "i8"),  # how long they are, ns: without what passed between them
    # Sums over its exchanges: their number, and the times of answered ones, ns.
    ("exchanges", "i8"),
    ("total_sum_ns", "i8"),
    ("hol_wait_sum_ns", "i8"),
    ("throttle_wait_sum_ns", "i8"),
    ("broker_sum_ns", "i8"),  # without APIs that wait at the broker (WAITS)
    ("wait_loss_sum_ns", "i8"),  # of the time between request and response, while one of them was lost
    ("muted_sum_ns", "i8"),  # of the throttle wait, while requests were sent
    ("requests", "i8"),
    ("head", "i8"),  # the packet of an early answer (`correlation`), or one that showed that it is TLS or foreign; 0
    ("not_kafka_since", "i8"),  # the packet of chunk NOT_KAFKA_AFTER (or a later one) without Kafka; 0
    ("source_high", "i8"),  # the client's address by a PROXY header, as in a flow, ...
    ("source_low", "i8"),
    ("sample_sequence", "i8"),  # of the sample with the highest rank: as a sample, with its sequence number as time
    ("waiting_first", "i4"),  # open exchanges that wait for their response, in order; -1
    ("waiting_last", "i4"),
    ("waiting_count", "i4"),
    ("client_id", "i4"),
    ("software", "i4"),
    ("software_version", "i4"),
    ("mechanism", "i4"),  # of SASL
    ("end_a", "i4"),  # the keys of both ends (`known_brokers`), which the caller writes before its bytes come
    ("end_b", "i4"),
    ("advertised", "i4"),  # the APIs beyond Kafka's own that its broker lists (`advertised`)
    ("unanswered", "i4"),  # of its exchanges: those without a response that was expected
    ("rebalance_ms", "i4"),  # of its latest JoinGroup request; 0 after a SyncGroup request; -1 before either
    ("unknown_chunks", "i4"),  # chunks without Kafka; counted until it is Kafka
    ("source_port", "i4"),  # ... and its port; -1 for none
    ("client", "i1"),  # the direction that sends requests, -1 unknown
    ("protocol", "u1"),
    ("raw_sasl", "u1"),  # 1 after SaslHandshake v0: frames are bare tokens until a request header comes
    ("ahead_polls", "u1"),  # 1: its broker time was a wait for data or for other members of a group
    ("ahead_unread", "u1"),  # 1: its throttle time was not captured
    ("ahead_in_doubt", "u1"),  # 1: its broker time may contain a throttle wait
    ("ahead_passed", "u1"),  # its `passed`
    ("answers_at_once", "i1"),  # KIP-219: AT_ONCE_... or ANSWERS_LATE
    ("head_tries", "u1"),  # so many more answers may be a better head
    ("head_is_sure", "u1"),  # 1: no request waits at the head that came before it
    ("is_open", "u1"),
    ("shows_tls", "u1"),  # 1: a chunk with SHOWS_TLS came
    ("is_second_look", "u1"),  # 1: it seemed foreign before
    ("shows_broker", "u1"),  # 1: a request of it was answered
    ("is_expected", "u1"),  # 1: its broker's port was named beforehand, or an end is known to be a broker's
    ("tls_version", "i1"),  # of TLS_VERSIONS, from which its bytes were decrypted; -1
    ("is_source_new", "u1"),  # 1: the connection's ends do not have it yet
    ("is_sampled", "u1"),  # 1: its samples (`samples`) are its own
)

#: What connections and streams add up for tables: no message depends on it.
CONNECTION_SUMS = (
    "exchanges", "unanswered", "total_sum_ns", "hol_wait_sum_ns", "throttle_wait_sum_ns", "broker_sum_ns",
    "wait_loss_sum_ns", "muted_sum_ns",
)  # fmt: skip
STREAM_SUMS = ("transfer_sum_ns", "resent_sum_ns")
SILENCE_SUMS = ("loss_sum_ns", "receiver_sum_ns", "sender_sum_ns", "unexplained_sum_ns")

#: One direction. In sync, its buffer holds the captured bytes of the current frame from the first one on. During a
#: resync, it holds all bytes in which a frame may still start.
STREAM = record_dtype(
    ("buffer", "i8"),
    ("used", "i8"),
    ("frame_size", "i8"),  # length of the current frame with its size field; 0 until the size field is read
    ("kept", "i8"),  # how many of its bytes are wanted, from the first one on
    ("passed", "i8"),  # how many of its bytes passed, gaps included
    ("seen", "i8"),  # how many of its bytes packets carried
    ("first", "i8"),  # time and packet of its first byte
    ("packet_first", "i8"),
    ("seq_first", "i8"),  # of its first byte, as of `frames.ChunkPart`
    ("last", "i8"),  # time and packet of the last bytes
    ("packet_last", "i8"),
    ("retry", "i8"),  # the used bytes at which a candidate that waits for more is worth another look
    ("losses", "i8"),  # gaps and losses of sync so far
    ("transfer_sum_ns", "i8"),  # from first to last byte of its frames, summed
    ("resent_sum_ns", "i8"),  # from the last byte of frames to its copy, where the first one did not arrive, summed
    ("resent_ns", "i8"),  # the last part of that, and until when it lasts
    ("resent_until", "i8"),
    ("frame_bytes", "i8"),
    ("token_bytes", "i8"),
    ("skipped_bytes", "i8"),
    ("proxy_bytes", "i8"),  # of a PROXY header
    ("foreign_bytes", "i8"),  # while a connection that is Kafka seemed foreign, or of a broker that is none
    ("capacity", "i4"),  # size class of the buffer, -1 for none
    ("segments_first", "i4"),  # the segments whose bytes are searched; -1
    ("segments_last", "i4"),
    ("silence_row", "i4"),  # its row of SILENCE; 0: it needs none of its own
    ("mode", "u1"),
    ("opening", "u1"),  # what its first bytes are (`openings`)
    ("doubt", "u1"),
    ("is_broken", "u1"),  # the buffer lacks bytes of the current frame that passed
)

#: The stalls of a stream by cause, ns. Most connections end without any, so only streams with stalls have a row
#: (`silences.own_silence`). Row 0 has the zeros of all others.
SILENCE = record_dtype(
    # Those since the stream's last bytes.
    ("quiet_ns", "i8"),  # all of them
    ("quiet_loss_ns", "i8"),
    ("quiet_receiver_ns", "i8"),
    ("quiet_sender_ns", "i8"),
    ("quiet_nagle_ns", "i8"),  # of it
    ("quiet_unknown_ns", "i8"),
    ("quiet_late_ns", "i8"),
    # Those within the current frame.
    ("loss_ns", "i8"),
    ("receiver_ns", "i8"),
    ("sender_ns", "i8"),
    ("nagle_ns", "i8"),
    ("unknown_ns", "i8"),
    ("late_ns", "i8"),  # its first byte was missing so long while bytes behind it came, or waited behind a loss
    # Sums over the frames.
    ("loss_sum_ns", "i8"),
    ("receiver_sum_ns", "i8"),
    ("sender_sum_ns", "i8"),
    ("unexplained_sum_ns", "i8"),
)


@helper
def forget_frame(t, stream):  # type: ignore[no-untyped-def]
    """Make the next byte of a stream the first one of a frame."""
    stream.frame_size = 0
    stream.kept = 0
    stream.passed = 0
    stream.seen = 0
    stream.is_broken = 0
    if stream.silence_row != 0:
        silence = t.silences[stream.silence_row]
        silence.loss_ns = 0
        silence.receiver_ns = 0
        silence.sender_ns = 0
        silence.nagle_ns = 0
        silence.unknown_ns = 0
        silence.late_ns = 0


@helper
def forget_silence(silence):  # type: ignore[no-untyped-def]
    """Forget the stalls since the last bytes of the stream of a SILENCE."""
    silence.quiet_ns = 0
    silence.quiet_loss_ns = 0
    silence.quiet_receiver_ns = 0
    silence.quiet_sender_ns = 0
    silence.quiet_nagle_ns = 0
    silence.quiet_unknown_ns = 0
    silence.quiet_late_ns = 0


@helper
def clear_connection(connection, start):  # type: ignore[no-untyped-def]
    """Begin a connection with its START. The fields that `clear_facts` sets stay as they are."""
    connection.serial = start.at
    connection.key = start.length
    connection.ends = start.stamp
    connection.previous_response = NO_TIME
    connection.mute_end = NO_TIME
    connection.mute_begin = NO_TIME
    connection.mute_sum = 0
    connection.exchanges = 0
    connection.unanswered = 0
    connection.total_sum_ns = 0
    connection.hol_wait_sum_ns = 0
    connection.throttle_wait_sum_ns = 0
    connection.broker_sum_ns = 0
    connection.wait_loss_sum_ns = 0
    connection.muted_sum_ns = 0
    connection.requests = 0
    connection.head = 0
    connection.head_tries = HEAD_TRIES
    connection.head_is_sure = 0
    connection.not_kafka_since = 0
    connection.waiting_first = -1
    connection.waiting_last = -1
    connection.waiting_count = 0
    connection.shows_tls = 0
    connection.is_second_look = 0
    connection.shows_broker = 0
    connection.is_expected = start.source
    connection.tls_version = -1
    connection.unknown_chunks = 0
    connection.raw_sasl = 0
    connection.is_sampled = 0
    connection.is_open = 1


@helper
def clear_facts(connection, client):  # type: ignore[no-untyped-def]
    """Forget what may be known of a connection that began earlier. `client`: the direction of its client, or -1."""
    connection.client_id = -1
    connection.software = -1
    connection.software_version = -1
    connection.mechanism = -1
    connection.advertised = -1
    connection.client = client
    connection.protocol = PROTOCOL_UNKNOWN
    connection.answers_at_once = AT_ONCE_UNKNOWN
    connection.rebalance_ms = -1
    connection.source_high = 0
    connection.source_low = 0
    connection.source_port = -1
    connection.is_source_new = 0


@helper
def clear_stream(t, stream, mode):  # type: ignore[no-untyped-def]
    """Begin a stream. It keeps the row of SILENCE that one of the same number had before."""
    forget_frame(t, stream)
    if stream.silence_row != 0:
        silence = t.silences[stream.silence_row]
        forget_silence(silence)
        silence.loss_sum_ns = 0
        silence.receiver_sum_ns = 0
        silence.sender_sum_ns = 0
        silence.unexplained_sum_ns = 0
    stream.last = NO_TIME
    stream.buffer = 0
    stream.used = 0
    stream.first = NO_TIME
    stream.packet_first = 0
    stream.packet_last = 0
    stream.seq_first = 0
    stream.retry = 0
    stream.losses = 0
    stream.transfer_sum_ns = 0
    stream.resent_sum_ns = 0
    stream.resent_ns = 0
    stream.resent_until = NO_TIME
    stream.frame_bytes = 0
    stream.token_bytes = 0
    stream.skipped_bytes = 0
    stream.proxy_bytes = 0
    stream.foreign_bytes = 0
    stream.opening = 0
    stream.capacity = -1
    stream.segments_first = -1
    stream.segments_last = -1
    stream.mode = mode
    stream.doubt = DOUBT_NONE

"""Samples of a connection's exchanges, by which the same connection is recognised under other addresses.

A hash of what a request says of itself (API, correlation_id, size) gives it a place among SAMPLES, and a rank there.
Each place keeps the exchange of the highest rank, whatever was captured before: so both captures of a connection keep
the same ones, except where packets are missing, and the samples of parts of a connection become those of the whole.

A sample is a number: IS_OWN if not all brokers answer it alike; the rest of its rank (15 bits); a digest of the first
bytes (16 bits); and the time of the first byte, ns, of which the lowest 31 bits suffice for times that are less than a
second apart. 0: none.
"""

from __future__ import annotations

import numpy as np

from kafkatap.kernels.decorator import helper, record_dtype
from kafkatap.kernels.hashing import mix, spread
from kafkatap.kernels.readers import be32

#: Samples of a connection.
SAMPLES = 8
#: Bits of a sample's time, and of its digest.
TIME_BITS, DIGEST_BITS = 31, 16
#: Set in a sample that is not of an API that all brokers answer alike.
IS_OWN = 1 << 62
#: One sample, of an exchange that was answered.
SAMPLE = record_dtype(("request", "i8"), ("response", "i8"))

#: Bytes of a message that its digest reads.
_READ = 128
_SEED = 0x5851F42D
_OWN_RANK = IS_OWN >> (TIME_BITS + DIGEST_BITS)
_TIME, _DIGEST = (1 << TIME_BITS) - 1, (1 << DIGEST_BITS) - 1
#: All brokers answer these alike, and to all clients: Metadata, FindCoordinator, SaslHandshake, ApiVersions,
#: DescribeConfigs, SaslAuthenticate, DescribeCluster.
_ALIKE = sum(1 << key for key in (3, 10, 17, 18, 32, 36, 60))


@helper
def _digest_of(frame):  # type: ignore[no-untyped-def]
    """A digest of the first captured bytes of a frame."""
    end = min(frame.end, frame.at + _READ)
    at, h = frame.at, np.int64(_SEED)
    while at + 4 <= end:
        h = mix(h, be32(frame.buf, at), _SEED)
        at += 4
    while at < end:
        h = mix(h, np.int64(frame.buf[np.uintp(at)]), _SEED)
        at += 1
    return spread(h) & _DIGEST


@helper
def choose_sample(t, c, slot, frame):  # type: ignore[no-untyped-def]
    """Note in the LINK of a request whether its exchange becomes a sample once it is answered."""
    x = t.exchanges[slot]
    key = np.int64(x.api_key)
    own = 0 if 0 <= key < 63 and (_ALIKE >> key) & 1 else _OWN_RANK
    h = spread(mix(mix(np.int64(x.correlation_id), key, _SEED), np.int64(x.request_bytes), _SEED))
    place, rank = h & (SAMPLES - 1), own | (h >> 15)
    if t.connections[c].is_sampled and rank < t.samples[c * SAMPLES + place].request >> (TIME_BITS + DIGEST_BITS):
        return
    t.links[slot].sample = 1 + ((((place << DIGEST_BITS) | rank) << DIGEST_BITS) | _digest_of(frame))


@helper
def note_sample(t, c, slot, frame):  # type: ignore[no-untyped-def]
    """Note an exchange that was chosen as a sample. `frame`: its response."""
    connection, x, link = t.connections[c], t.exchanges[slot], t.links[slot]
    if connection.is_sampled == 0:
        connection.is_sampled = 1
        connection.sample_sequence = 0
        for place in range(SAMPLES):
            t.samples[c * SAMPLES + place].request = 0
            t.samples[c * SAMPLES + place].response = 0
    chosen = np.int64(link.sample) - 1
    digest = chosen & ((1 << 2 * DIGEST_BITS) - 1)
    sample = t.samples[c * SAMPLES + (chosen >> 2 * DIGEST_BITS)]
    answer = (digest - (digest & _DIGEST)) | _digest_of(frame)
    sample.request = max(sample.request, (digest << TIME_BITS) | (x.request_first & _TIME))
    sample.response = max(sample.response, (answer << TIME_BITS) | (x.response_first & _TIME))
    sequence = (digest << TIME_BITS) | (np.int64(link.request_end) & _TIME)
    connection.sample_sequence = max(connection.sample_sequence, sequence)

"""The numbers in rows of connections that mean words, and the words."""

from __future__ import annotations

ENDS = ("client", "broker")

PROTOCOLS = ("unknown", "kafka", "tls", "foreign")
P_UNKNOWN, P_KAFKA, P_TLS, P_FOREIGN = range(4)

#: What the first bytes of an end are, if no Kafka (`dissector.framing.openings`).
OPENINGS = ("", "", "TLS alert", "TLS", "HTTP")
O_TLS_ALERT, O_TLS, O_HTTP = range(2, 5)

#: How the handshake of a connection went: its SYN and SYN-ACK were not captured; its SYN was not answered; its SYN-ACK
#: was not acknowledged; its SYN was answered by a RST or by ICMP; it is complete. Later ones are better known.
HANDSHAKES = ("not captured", "unanswered", "unfinished", "refused", "complete")
H_NOT_CAPTURED, H_UNANSWERED, H_UNFINISHED, H_REFUSED, H_COMPLETE = range(5)
#: What closed a connection first, if anything.
CLOSERS = ("", "FIN", "RST")
NOT_CLOSED, WITH_FIN, WITH_RST = range(3)
#: `client_window_scale` and `broker_window_scale` if the SYN had no such option, and if it was not captured.
NO_SCALE, SCALE_UNKNOWN = -2, -1

#: Whether a TLS connection was decrypted, and why not: it is no TLS connection; it was decrypted; no key log was given;
#: the key log has no secret of its client random; its handshake was not captured, and no secret fits; its version or
#: cipher suite is not supported; the secret does not decrypt it; its handshake failed, so there was nothing to decrypt;
#: its key came too late, so it was decrypted from then on; the snap length or a loss cut its hellos.
DECRYPTIONS = (
    "", "decrypted", "no key log", "no key", "no handshake", "unsupported suite", "wrong key", "failed handshake",
    "late key", "cut",
)  # fmt: skip
(
    D_NOT_TLS,
    D_DECRYPTED,
    D_NO_KEY_LOG,
    D_NO_KEY,
    D_NO_HANDSHAKE,
    D_UNSUPPORTED,
    D_WRONG_KEY,
    D_FAILED_HANDSHAKE,
    D_LATE_KEY,
    D_CUT,
) = range(10)
#: Those of TLS connections that were not decrypted.
NOT_DECRYPTED = (D_NO_KEY_LOG, D_NO_KEY, D_NO_HANDSHAKE, D_CUT, D_UNSUPPORTED, D_WRONG_KEY, D_FAILED_HANDSHAKE)
#: Those of TLS connections that were decrypted, at least from some record on.
WERE_DECRYPTED = (D_DECRYPTED, D_LATE_KEY)
#: How a TLS session began: with a full handshake; resumed by session id, ticket or PSK; resumed with early data.
TLS_SESSIONS = ("full handshake", "resumed", "early data")
TLS_FULL, TLS_RESUMED, TLS_EARLY_DATA = range(3)

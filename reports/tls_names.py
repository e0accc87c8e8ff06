"""Names of TLS numbers, as IANA has them: versions, cipher suites, alerts.

Cipher suites: those of TLS 1.3, and those of earlier versions that Java, OpenSSL and Go have enabled in the last years.
"""

from __future__ import annotations

TLS_1_2, TLS_1_3 = 0x0303, 0x0304
#: Alerts of TLS 1.3 that are no errors.
NO_ERRORS = CLOSE_NOTIFY, USER_CANCELED = 0, 90

VERSIONS = {
    0x0002: "SSL 2.0",
    0x0300: "SSL 3.0",
    0x0301: "TLS 1.0",
    0x0302: "TLS 1.1",
    TLS_1_2: "TLS 1.2",
    TLS_1_3: "TLS 1.3",
}
SUITES = {
    0x000A: "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    0x002F: "TLS_RSA_WITH_AES_128_CBC_SHA",
    0x0033: "TLS_DHE_RSA_WITH_AES_128_CBC_SHA",
    0x0035: "TLS_RSA_WITH_AES_256_CBC_SHA",
    0x0039: "TLS_DHE_RSA_WITH_AES_256_CBC_SHA",
    0x003C: "TLS_RSA_WITH_AES_128_CBC_SHA256",
    0x003D: "TLS_RSA_WITH_AES_256_CBC_SHA256",
    0x0067: "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256",
    0x006B: "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256",
    0x009C: "TLS_RSA_WITH_AES_128_GCM_SHA256",
    0x009D: "TLS_RSA_WITH_AES_256_GCM_SHA384",
    0x009E: "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
    0x009F: "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
    0x1301: "TLS_AES_128_GCM_SHA256",
    0x1302: "TLS_AES_256_GCM_SHA384",
    0x1303: "TLS_CHACHA20_POLY1305_SHA256",
    0x1304: "TLS_AES_128_CCM_SHA256",
    0x1305: "TLS_AES_128_CCM_8_SHA256",
    0xC008: "TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA",
    0xC009: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    0xC00A: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    0xC012: "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    0xC013: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    0xC014: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    0xC023: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    0xC024: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
    0xC027: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    0xC028: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
    0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    0xC02C: "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    0xC030: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    0xC09C: "TLS_RSA_WITH_AES_128_CCM",
    0xC09D: "TLS_RSA_WITH_AES_256_CCM",
    0xC09E: "TLS_DHE_RSA_WITH_AES_128_CCM",
    0xC09F: "TLS_DHE_RSA_WITH_AES_256_CCM",
    0xC0AC: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
    0xC0AD: "TLS_ECDHE_ECDSA_WITH_AES_256_CCM",
    0xCCA8: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    0xCCA9: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    0xCCAA: "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}
#: Alerts of TLS 1.3 that are encrypted, as their lengths show: of the broker to a client that sent no certificate
#: though it was asked for one, of the broker otherwise, and of the client in place of its Finished.
HIDDEN = HIDDEN_NO_CERTIFICATE, HIDDEN_CLIENT_CERTIFICATE, HIDDEN_BROKER_CERTIFICATE = range(256, 259)
#: Descriptions of alerts (RFC 8446, 6; the reserved ones as in RFC 5246, 7.2).
ALERTS = {
    CLOSE_NOTIFY: "close_notify",
    10: "unexpected_message",
    20: "bad_record_mac",
    21: "decryption_failed",
    22: "record_overflow",
    30: "decompression_failure",
    40: "handshake_failure",
    41: "no_certificate",
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    47: "illegal_parameter",
    48: "unknown_ca",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    60: "export_restriction",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    USER_CANCELED: "user_canceled",
    100: "no_renegotiation",
    109: "missing_extension",
    110: "unsupported_extension",
    111: "certificate_unobtainable",
    112: "unrecognized_name",
    113: "bad_certificate_status_response",
    114: "bad_certificate_hash_value",
    115: "unknown_psk_identity",
    116: "certificate_required",
    120: "no_application_protocol",
    121: "ech_required",
    # Not of the protocol:
    HIDDEN_NO_CERTIFICATE: "probably rejected (the client sent no certificate)",
    HIDDEN_CLIENT_CERTIFICATE: "probably rejected (client certificate?)",
    HIDDEN_BROKER_CERTIFICATE: "probably rejected (broker certificate?)",
}


def version_name(number: int) -> str | None:
    """`TLS 1.3`, or `0x7f1c` for a number without a name. None for 0: the version is not known."""
    return VERSIONS.get(number, f"0x{number:04x}") if number else None


def suite_name(number: int) -> str | None:
    """`TLS_AES_128_GCM_SHA256`, or `0x00ff` for a number without a name. None for 0: the suite is not known."""
    return SUITES.get(number, f"0x{number:04x}") if number else None


def alert_name(number: int) -> str | None:
    """`unknown_ca`, or `alert 200` for a number without a name. None for -1: there was no alert."""
    return ALERTS.get(number, f"alert {number}") if number >= 0 else None


#: By column of CONNECTION_ROW: the names of numbers, and the name of any number.
_NAMED = {
    "tls_version": (VERSIONS, version_name),
    "tls_suite": (SUITES, suite_name),
    "tls_alert": (ALERTS, alert_name),
}


def name_of(column: str, number: int) -> str | None:
    """The name of a number in a column of CONNECTION_ROW."""
    return _NAMED[column][1](number)

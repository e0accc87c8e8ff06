"""TLS: chunks of reassembly in, chunks with plain bytes out, for connections whose secrets are in a key log.

`layer` stands between reassembly and the dissector. It finds TLS connections and their records. A `session` reads the
handshake and decrypts records. Connections that cannot be decrypted pass unchanged; `estimates` has response times that
sizes and times of their records show.

It must not know Kafka, and opens no capture. Ciphers, hashes and certificates are those of the package `cryptography`.
"""

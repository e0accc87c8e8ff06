"""`kafkatap live`: packets from interfaces through the same engine, while they come.

* `interfaces`, `bpf`, `ring`, `capture_sockets`  where packets come from
* `monitor`     the loop: packets, engine, counts of each second, and those who listen (`sinks`)
* `windows`     counts over the last seconds and since the start, bounded
* `governor`    how much is decoded, so that the host is not hurt
* `rows`        counts as rows for people; `recent`: the last exchanges; `plain`: a line an interval
* `screen`      keys, and what they open (`drill`), drawn as lines (`frame`, `columns`) on the `terminal`
* `metrics`     counts as metric `families`, of bounded `labels`; `prometheus`, `otlp`: who takes them
* `recorder`    packets around incidents on disk, from a `packet_ring` to a `capture_file`
* `tables`      the rows as Parquet on disk
* `command`     from options to all of this
"""

"""`kafkatap live`: packets from network interfaces through the same engine as `report`, as they arrive.

* `capture/`    packets from interfaces: rings, filters, capabilities. It must not know the monitor or Kafka.
* `monitor`     the loop: packets → engine → counts of each second → sinks. It must not know any of the rooms below.
* `screen/`     what a person sees: the live screen and `--plain` lines. It reads the monitor.
* `export/`     what other systems read: metrics and Parquet files. It reads what sinks get, and the status.
* `recording/`  packets on disk: all of them, or those around incidents. It reads what sinks get.

`screen`, `export` and `recording` do not know each other; a new output is a `Sink` in one of them. No module here knows
Spark. Beside the monitor are the modules that it is made of:

* `sink`             what an output gets, and when
* `status`           how the monitor itself does: load, drops, level of detail
* `count_windows`    counts of each second, of the last seconds, and since the start
* `broker_health`    connections by broker: opened, refused, reset, round trips
* `provisional_rows` exchanges that count before they end
* `governor`         the level of detail, so that the host keeps its processors, and the niceness
* `memory_limits`    what keeps memory flat for months; `process_memory` asks the C library and the kernel
* `notices`          lines for the user while a screen has the terminal
* `latency_buckets`  the bounds of all histograms of metrics
"""

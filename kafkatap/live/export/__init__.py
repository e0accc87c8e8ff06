"""What other systems take: Prometheus, OpenTelemetry, Parquet files."""

"""What other systems read: metrics for Prometheus and OpenTelemetry, and Parquet files."""

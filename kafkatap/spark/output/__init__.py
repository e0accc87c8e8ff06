"""Tables and reports of a job, written whole or not at all."""

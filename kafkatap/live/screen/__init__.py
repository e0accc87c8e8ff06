"""What a person sees during a capture: the live screen, and `--plain` lines."""

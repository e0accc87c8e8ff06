"""What a person sees while packets are captured: the live screen, and `--plain` lines."""

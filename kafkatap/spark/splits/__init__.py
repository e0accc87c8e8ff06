"""A split of a capture: surveyed, planned, decoded, and proved."""

"""`kafkatap compare`: what has changed between two captures."""

"""`kafkatap doctor`: how good captures are."""

"""Messages for people: lines, trees, hexadecimal dumps, JSON."""

"""Layouts compiled to programs, the machine that runs them over message bodies, and the tape that it writes."""

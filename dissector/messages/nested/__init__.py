"""Layouts of what lies in byte fields, not in frames of its own: one `data` block each, in the notation of messages."""

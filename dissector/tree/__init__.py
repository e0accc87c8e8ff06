"""One message as a tree of nodes, with all that is nested in its byte fields."""

"""The exit codes of commands; `kafkatap --help` lists their meaning."""

DONE, DAMAGED, WRONG, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

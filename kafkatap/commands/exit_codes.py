"""The exit codes of commands; `kafkatap --help` lists their meaning."""

DONE, DAMAGED, WRONG, BREAKS, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143

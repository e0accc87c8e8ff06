"""The exit codes of commands; `kafkatap --help` lists their meaning."""

DONE, DAMAGED, WRONG, BREAKS, LEFT_OUT, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

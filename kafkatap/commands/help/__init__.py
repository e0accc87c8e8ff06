"""`kafkatap help`: `arguments` has its options, `command` its run, `agents.md` the page for programs and agents."""

"""`kafkatap extract`: its options in `arguments`, its run in `command`."""

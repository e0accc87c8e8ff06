"""`kafkatap records`: its options in `arguments`, its run in `command`."""

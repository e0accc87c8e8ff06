"""`kafkatap completion`: its options in `arguments`, its run in `command`."""

"""`kafkatap apis`: its options in `arguments`, its run in `command`."""

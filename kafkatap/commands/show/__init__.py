"""`kafkatap show`: its options in `arguments`, its run in `command`."""

"""`kafkatap extcap`: its options in `arguments`, its run in `command`."""

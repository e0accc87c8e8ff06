"""`kafkatap live`: its options in `arguments`, its run in `command`."""

"""`kafkatap spark`: its options in `arguments`, its run in `command`."""

"""`kafkatap errors`: its options in `arguments`, its run in `command`."""

"""`kafkatap report`: its options in `arguments`, its run in `command`, CSV and plots in `files`."""

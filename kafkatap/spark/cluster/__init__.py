"""The cluster: sessions, Java, executors, and what they need of this package."""

"""Adapters for other packages, one file each. Each is optional, and imported under its own name."""

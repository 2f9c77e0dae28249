"""Bridges to other packages, one file each; each is imported by its own name, and is optional."""

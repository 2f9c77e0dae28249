"""Experiments: thin, on the public API, and the numbers they give."""

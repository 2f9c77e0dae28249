"""The experiments of the paper, reproduced with the library: `python -m paper`.

This is not part of the package `csgmcmc`, which never imports it; it uses the public API alone.
"""

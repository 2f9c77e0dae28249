"""Is it right: plain arrays in, numbers out."""

from csgmcmc.diagnostics.modes import in_mode_mass, mode_counts, mode_coverage, mode_total_variation

__all__ = ["in_mode_mass", "mode_counts", "mode_coverage", "mode_total_variation"]

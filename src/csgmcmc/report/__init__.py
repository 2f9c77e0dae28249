"""Tables of numbers that were computed elsewhere."""

"""Tables and pictures of numbers that were computed elsewhere."""

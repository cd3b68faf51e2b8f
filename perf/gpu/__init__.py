"""All that is worth doing on a machine with a GPU, in one go: prepared here, checked there."""

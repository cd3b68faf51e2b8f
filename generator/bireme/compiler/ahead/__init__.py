"""The finished model cut in two: the user ahead of time, slices of candidates later."""

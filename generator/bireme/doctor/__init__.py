"""Looks at the host and its environment and says what to do: facts gathered at the edge, checks as data."""

"""What Triton accepts silently and then ignores, or what makes it answer wrongly: rules as data."""

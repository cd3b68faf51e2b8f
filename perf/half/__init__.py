"""Models, clicks and picture of the precision record."""

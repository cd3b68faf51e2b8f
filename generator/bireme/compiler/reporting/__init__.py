"""What the compiler found and did: as data, as text, as one HTML page."""

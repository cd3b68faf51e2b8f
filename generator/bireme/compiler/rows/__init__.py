"""From rows to [users, candidates]: the user side once, and the proof that no op mixes candidates."""

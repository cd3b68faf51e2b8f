"""The network executed operator by operator, as a framework without a compiler does it: the baseline."""

"""Readiness that tells the truth: one real inference, and whose fault it is if there is no good answer.

Kubernetes runs this every few seconds as a process of its own, so nothing here imports numpy or, for HTTP,
tritonclient.
"""

"""The C kernel's library: which commands make it, with which compiler, and when.

`flags` (pure: sources → commands, build id), `compilers` (which are there for an architecture), `library`
(runs the commands, keeps the result beside the sources, notices a stale one). Called by `bireme build`,
`bireme kernel` and setup.py; by that before anything else is installed, so: standard library only. The
sources and the finished libraries lie in `bireme_runtime/native/`.
"""

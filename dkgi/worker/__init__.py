"""The agents' side of a cell in a process of its own, and what its parent does for it (sandbox/README.md)."""

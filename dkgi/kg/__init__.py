"""Graph tools: an index over an export and the four calls on it, for agents that get no files (paper, section 7)."""

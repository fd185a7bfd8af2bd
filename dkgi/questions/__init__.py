"""Questions that are made for a graph, with answers that are exact by construction."""

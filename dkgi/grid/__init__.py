"""Many cells at once: composed, checked and priced as a whole, run by jailed workers, compared at the end (README, Grids)."""

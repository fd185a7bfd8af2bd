"""What finished cells say: summaries, intervals, tables."""

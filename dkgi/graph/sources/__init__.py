"""One module a source of graphs; each builds a `SourceGraph`."""

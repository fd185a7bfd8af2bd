"""One nsjail per command: profile, start-up checks, the command server, scratch folders (sandbox/README.md)."""

"""Knowledge graphs as files: export, check, views, readers."""

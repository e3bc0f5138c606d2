"""The one layer that knows concrete parts. `assemble` puts them together."""

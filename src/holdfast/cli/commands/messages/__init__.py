"""The commands about messages between systems."""

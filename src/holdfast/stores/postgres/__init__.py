"""The store for many machines."""

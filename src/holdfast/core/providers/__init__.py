"""Providers: breakers, limits and what all workers share about them."""

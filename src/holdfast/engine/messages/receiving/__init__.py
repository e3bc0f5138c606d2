"""Receiving messages: decode them, store what they ask for, and acknowledge them."""

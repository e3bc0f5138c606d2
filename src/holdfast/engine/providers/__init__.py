"""Calls to providers: admission, limits, and the state that all workers share."""

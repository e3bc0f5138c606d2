"""Integrations of Holdfast with frameworks."""

"""One migration for each version of Holdfast's schema, so that `manage.py migrate` detects a new one.

The tables have no Django models; the SQL is that of `holdfast schema apply`.
"""

"""One migration for each version of Holdfast's schema, so that `manage.py migrate` knows when there is something to do.

The tables are Holdfast's own, described by no model; the SQL is that of `holdfast schema apply`.
"""

"""The queries of the SQLite store."""

from holdfast.stores.queries import Queries

SQL = Queries(__package__)

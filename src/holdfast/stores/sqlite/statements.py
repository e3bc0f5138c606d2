"""The queries of the SQLite store."""

from holdfast.stores.queries import Statements

SQL = Statements(__package__)

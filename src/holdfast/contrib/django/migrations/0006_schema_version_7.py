"""The schema with announcements."""

from django.db.migrations import Migration as DjangosMigration

from holdfast.contrib.django.schema import apply_schema


class Migration(DjangosMigration):  # type: ignore[misc]  # Django has no types
    """Not in a transaction of Django's: with SQLite that would lock out the connection that does the work."""

    atomic = False
    dependencies = (("holdfast", "0005_schema_version_6"),)
    operations = (apply_schema(),)

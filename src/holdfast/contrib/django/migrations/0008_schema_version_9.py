"""The schema with dispatches to Celery and arq workers."""

from django.db.migrations import Migration as DjangosMigration

from holdfast.contrib.django.schema import apply_schema


class Migration(DjangosMigration):  # type: ignore[misc]  # Django has no types
    """Not in a transaction of Django's: with SQLite that would lock out the connection that does the work."""

    atomic = False
    dependencies = (("holdfast", "0007_schema_version_8"),)
    operations = (apply_schema(),)

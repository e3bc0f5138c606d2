"""A pytest plugin for mutants: Hypothesis tries the same examples in each run, and does not simplify one that failed.

That a mutant was noticed is all that counts; to find the smallest example takes longer than all other tests.
"""

from hypothesis import HealthCheck, Phase, settings


def pytest_configure() -> None:
    """Choose how examples are made, before the first test is read."""
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a process that imports torch is marked as the tests on ranks are; others start one without."""
    for item in items:
        if "tests/audit/" in item.nodeid:
            imports_torch = "processes" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.ranks if imports_torch else pytest.mark.slow)


@pytest.fixture(scope="session")
def processes() -> None:
    """Named by tests that start processes which import torch."""

"""Working copies of terraform/ and deploy/. Where Terraform is missing every test here is skipped, and says why."""

import pytest

from tests.terraform.installed import WorkingCopy, missing


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> WorkingCopy:
    """Raises pytest's Skipped where this machine has no Terraform or no provider."""
    if reason := missing():
        pytest.skip(reason)
    return WorkingCopy(tmp_path_factory.mktemp("terraform"))

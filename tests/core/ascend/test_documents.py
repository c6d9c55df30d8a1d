"""The documents about Ascend say what the tests prove, in both languages."""

from __future__ import annotations

import proofs
import pytest


@pytest.mark.parametrize("language", proofs.DOCUMENTS)
def test_the_lists_in_the_document_are_the_tests_own(language):
    assert proofs.render(language) in proofs.DOCUMENTS[language].read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "test"), [entry[2:] for entry in proofs.PROVEN])
def test_every_proof_is_a_test_there_is(file, test):
    assert f"def {test}(" in (proofs.ROOT / file).read_text(encoding="utf-8")

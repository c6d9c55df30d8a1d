"""`fake_distribution` installs for one test and leaves nothing behind."""

from __future__ import annotations

import sys
from importlib import metadata

from perfcollect_core.discovery import plugin_index
from perfcollect_core.loading import load_operator


def test_a_fake_distribution_is_one_to_every_reader_of_metadata(fake_distribution):
    made = fake_distribution(
        "ops-fake", "1.2.3", operators={"Fake": "ops_fake"}, requires=["perfcollect-core>=0.1"]
    )

    found = metadata.distribution("ops-fake")

    assert (found.version, found.requires) == ("1.2.3", ["perfcollect-core>=0.1"])
    assert made.dist_info.name == "ops_fake-1.2.3.dist-info"


def test_a_module_of_a_fake_distribution_is_there_within_a_test(fake_distribution):
    fake_distribution(
        "ops-fake", operators={"Fake": "ops_fake_once.inner"}, files={"ops_fake_once/inner.py": "x = 1\n"}
    )

    assert load_operator("Fake").plugin.x == 1


def test_nothing_is_left_of_it_afterwards():
    assert "Fake" not in plugin_index().names("operators")
    assert not [name for name in sys.modules if name.startswith("ops_fake_once")]
    assert not [path for path in sys.path if "ops-fake" in path]


def test_a_scan_sees_what_was_installed_since(fake_distribution, index):
    before = index()
    fake_distribution("ops-fake", operators={"Fake": "ops_fake"})

    assert "Fake" not in before.names("operators")
    assert "Fake" in index().names("operators")

"""The port range of HCCL is judged before a job finds out."""

from __future__ import annotations

import socket

import pytest

from perfcollect_core.diagnosis.findings import Scope
from perfcollect_core.diagnosis.ports import base_port_trouble, hccl_ports


@pytest.mark.parametrize(
    ("text", "devices", "busy", "trouble"),
    [
        ("60000", 16, (), None),
        (
            "65530",
            16,
            (),
            "HCCL_IF_BASE_PORT=65530 for 16 NPUs: the range 65530 to 65545 ends above 65535",
        ),
        ("60000", 16, (60003,), "HCCL_IF_BASE_PORT=60000 for 16 NPUs: 60003 is taken"),
        ("sixty", 2, (), "HCCL_IF_BASE_PORT=sixty is not a number"),
    ],
)
def test_a_base_port_is_judged_with_the_whole_range(text, devices, busy, trouble):
    assert base_port_trouble(text, devices, lambda port: port in busy) == trouble


def test_a_port_that_somebody_listens_on_is_found_by_binding(monkeypatch):
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        monkeypatch.setenv("HCCL_IF_BASE_PORT", str(min(port, 65520)))

        (finding,) = hccl_ports(Scope(family="ascend"))

    assert finding.level == "error"
    assert f"{port} is taken" in finding.message or str(port) in finding.message


def test_nothing_is_said_where_the_variable_is_not_set(monkeypatch):
    monkeypatch.delenv("HCCL_IF_BASE_PORT", raising=False)

    assert list(hccl_ports(Scope())) == []

"""The expert-parallel world of DispatchFFNCombine is started as it was asked for, or not at all."""

from __future__ import annotations

import pytest

from perfcollect_core.cli import main

EP = "--dispatch-ffn-combine-"


@pytest.mark.parametrize("command", ["run", "replay"])
@pytest.mark.parametrize(("nodes", "rank"), [("2", "0"), ("2", "1"), ("1", "1")])
def test_several_nodes_are_refused(command, nodes, rank, capsys):
    code = main(
        [
            command,
            "--dispatch-ffn-combine-nnodes",
            nodes,
            "--dispatch-ffn-combine-node-rank",
            rank,
            "--dispatch-ffn-combine-nproc-per-node",
            "16",
        ]
    )

    assert code == 2
    assert capsys.readouterr().err == (
        f"error: --dispatch-ffn-combine-nnodes {nodes} and -node-rank {rank}: "
        "a run starts the ranks of one node only\n"
        "hint: leave both out and give an EP size that the NPUs of this node carry\n"
    )


def test_other_processes_than_ranks_are_refused(capsys):
    assert main(["run", f"{EP}ep-size", "16", f"{EP}nproc-per-node", "8"]) == 2

    assert capsys.readouterr().err.splitlines()[0] == (
        "error: --dispatch-ffn-combine-nproc-per-node 8 with an EP size of 16 on one node"
    )

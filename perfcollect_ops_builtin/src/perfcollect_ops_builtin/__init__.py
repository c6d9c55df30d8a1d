"""Replays of operators that stock torch or torch_npu launches."""

"""Replays of operators that need vllm-ascend, a custom OPP package, NNAL/ATB or triton-ascend."""

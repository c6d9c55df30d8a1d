"""Micro-benchmarks of collectives: HCCL, NCCL and Gloo."""

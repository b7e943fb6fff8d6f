"""The operators in NVIDIA DALI, and pipelines that mix formats and places."""

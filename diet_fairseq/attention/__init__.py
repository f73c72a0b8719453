"""The attention equation with position schemes, and faster ways to compute it.

The package depends only on PyTorch.
"""

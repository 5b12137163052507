"""Numerical building blocks that no model owns: weighted rows, blocks of documents, devices, draws."""

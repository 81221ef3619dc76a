"""Protocols that applications speak in, what the principal of each caller may read out."""

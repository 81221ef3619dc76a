"""Texts in, vectors out: batches by token budget, retries with a budget, where weights lie, and the hash embedder for tests."""

"""Azure's condition language, version 2.0: text in; its tree, its truth for a blob, and a filter for a store out."""

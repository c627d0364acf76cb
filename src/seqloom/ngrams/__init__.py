"""Language models that count: which words follow which few words."""

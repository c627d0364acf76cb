"""Words as vectors: counted, predicted, compared."""

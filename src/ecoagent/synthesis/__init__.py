"""EcoAgent-Syn: generate, parse, filter, deduplicate, split, mine negatives (paper, Section 2)."""

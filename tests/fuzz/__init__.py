"""Coverage-guided fuzzing: targets, their invariants and their corpora."""

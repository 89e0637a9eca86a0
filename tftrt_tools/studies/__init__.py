"""What is measured and decided over models: benchmarks, regressions, searches, profiles and diagnoses."""

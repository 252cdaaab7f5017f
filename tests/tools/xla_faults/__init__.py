"""The faults of XLA that meshjit steers around, each as the least StableHLO that shows it; docs/xla.md says how each is avoided."""

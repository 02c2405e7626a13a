"""Many runs: queues, side-by-side tables, comparisons, the paper's tables and figures."""

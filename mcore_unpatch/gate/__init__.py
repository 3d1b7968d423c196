"""What `unpatch check` holds a change to: baselines, another commit, ignore comments, pins."""

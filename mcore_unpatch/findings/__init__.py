"""What is found and what becomes of it: rules, findings, verdicts and their reasons."""

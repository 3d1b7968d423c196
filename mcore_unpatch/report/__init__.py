"""Reports: text for people, JSON, SARIF and GitHub annotations for machines."""

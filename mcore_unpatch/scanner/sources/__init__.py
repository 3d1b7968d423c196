"""Files as the scanner reads them: which are worth parsing, their trees, scopes and calls, and what that may cost."""

"""Verify, show and write what the codemods plan: all files or none, and back again on request."""

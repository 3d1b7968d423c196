"""A Python library at one version, as its source tells: what it defines, and how it uses what it defines itself."""

"""Every sentence about patches and uses. Records come in, words go out; nothing here decides anything.

| module | what it says |
|---|---|
| `names` | names as short as they are told apart, lists of them, releases |
| `effects` | what a release does: the mark in a table, and at most three lines of detail |
| `verdicts` | what is to become of a patch, and why |
"""

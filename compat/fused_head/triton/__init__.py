"""The GPU backend. A kernel's arguments stand in groups (matrices, sizes, rows, constants): hence `fmt: skip`."""

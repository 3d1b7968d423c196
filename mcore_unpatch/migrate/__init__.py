"""The command `migrate`: from the paths a user names to the outcome, and what people are told of it."""

"""What a migration consists of, below both the tool and its codemods: files under edit, edits, remarks, the plan."""

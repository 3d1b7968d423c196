"""What in a repository patches a library. Records are facts: no sentence is made here.

    Finder(Names(index, library)).all() -> [Patch]        alive(guards, patch, releases) -> [True, False, None]

| module | what it answers |
|---|---|
| `records` | a write, a target, a patch, a patch file; their kinds as enums |
| `writes` | every spelling of "this attribute of that object becomes this value" as one record |
| `frames` | what the open names of a write stand for: rows of loops, calls of helpers, decorated functions |
| `targets` | which dotted name of the library a write changes, by what its base is |
| `evidence` | what a base is of which no type tells anything |
| `replacements` | what the written value is: a function, a new object, a kept original |
| `restores` | whether a write puts back what was there; whether a patch is temporary |
| `registries` | tables and calls that pair dotted names with functions |
| `rewrites` | source text of the library that is changed and executed, or written back |
| `patch_files` | diffs that change the library's source |
| `alive` | on which releases a patch is made |
| `find` | all of it for a repository, in one order whatever the order of the files |

No patches: tests (they are counted, not judged), the library's own files, hooks and wrappers of PyTorch, subclasses.
"""

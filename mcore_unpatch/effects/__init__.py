"""What a release of a library does to patches and uses of a repository, and what is to become of them. Records only.

    Judge(names, patches).step(patch, old, new) -> [Effect]        Uses(judge).step(module, old, new) -> [Effect]
    Verdicts(judge, rows, tells, releases).of(patch, releases) -> Verdict

| module | what it answers |
|---|---|
| `records` | an effect, its kind as one enum, its cause and its place |
| `meaning`, `keywords`, `asks` | what code asks of the library: names imported and read, calls with their form |
| `handlers` | who expects an exception |
| `raising` | what raises on one release where something is asked |
| `replaced`, `originals` | what a patch puts in place, what that takes, and where it calls what it replaced |
| `judge` | what a release, or a step, does to a patch |
| `changes`, `copies` | what a step changes without an error; copies that lag behind |
| `uses` | the same for everything else that a file uses, and for methods that override |
| `traits`, `verdicts` | which row of official answers fits a patch, and what becomes of it |

A library is a parameter; the words by which its rows know a patch come with them. `say` has the sentences.
"""

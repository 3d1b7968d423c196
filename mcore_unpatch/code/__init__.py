"""One representation of Python code, and the questions that are asked of it. Nothing is run, nothing is imported.

    files -> Index -> Module -> Names.of(expression) -> values
                             -> Reached.at(place) on a release -> True, False, None

| module | what it answers |
|---|---|
| `syntax` | how a node is spelled, what stands around it, what a function takes |
| `module` | one file: its tree, scopes, bindings, stores and calls, from one walk |
| `index` | which file has the module of a name, says a word, calls a function |
| `values` | what an expression may be: module, class, function, object, parameter, text, items, or another's name |
| `names`, `expressions`, `members` | what an expression is, by its kind, by what it is a member of; kept by node |
| `conditions` | what decides on the way to a node; which bindings reach it |
| `reached` | whether all of that comes out as it must on one release |
| `evaluate`, `literals`, `worth` | what the expressions in conditions are worth on one release |

A library is a parameter: `library.interface` says what is asked of it. What is not known is empty, never a guess.
A file that is no Python 3 is left out, and `Index.unreadable` says why.
"""

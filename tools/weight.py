"""How heavy the repository is, counted the same way each time: lines by area, tokens of the tool, words of prose.

python tools/weight.py
"""

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ("mcore_unpatch/", "codemods/")
DATA = (".txt", ".json", ".toml")
# Rooms of the next core, which nothing uses yet: counted apart until what they replace is gone.
NEXT = (
    *(
        f"{folder}/"
        for top, rooms in (("mcore_unpatch", "code patches effects say"), ("tests/tool", "code patches effects say"))
        for folder in (f"{top}/{room}" for room in rooms.split())
    ),
    *(
        f"mcore_unpatch/library/{name}.py"
        for name in ["interface", "released", "one_release", "detailed", "signatures"]
    ),
    *(f"mcore_unpatch/megatron/{name}.py" for name in ("parts", "packed")),
)
SPACE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def main() -> None:
    """Print one line for each figure that has a limit, then the folders of the tool and of the tests."""
    files = [ROOT / name for name in _git_files() if not (ROOT / name).is_symlink() and (ROOT / name).is_file()]
    every = [file for file in files if file.suffix == ".py"]
    following = _below(every, *NEXT)
    code = [file for file in every if file not in following]
    tool, compat, tests = _below(code, *TOOL), _below(code, "compat/"), _below(code, "tests/")
    rows = {
        "tool, lines": _lines(tool),
        "tool, tokens": sum(_tokens(file.read_text()) for file in tool),
        "compat, lines": _lines(compat),
        "tests, lines of Python": _lines(tests),
        "tests, lines of data": _lines(file for file in _below(files, "tests/") if file.suffix in DATA),
        "tools, lines": _lines(_below(code, "tools/")),
        "prose, words": sum(_words(file.read_text()) for file in files if file.suffix == ".md"),
        "docstrings of tool and compat, words": sum(_docstrings(file.read_text()) for file in (*tool, *compat)),
        "next core, not yet used, lines": _lines(_below(following, *TOOL)),
        "tests of the next core, lines": _lines(_below(following, "tests/")),
        "files over 400 lines": sum(_lines([file]) > 400 for file in (*tool, *compat, *following)),
    }
    for name, value in rows.items():
        print(f"{value:>9,}  {name}")
    for top, depth in (("mcore_unpatch/", 2), ("codemods/", 1), ("tests/", 3)):
        print()
        folders: dict[str, list[Path]] = {}
        for file in _below(every, top):
            folders.setdefault("/".join(_name(file).split("/")[:-1][:depth]), []).append(file)
        for folder, inside in sorted(folders.items()):
            print(f"{_lines(inside):>9,}  {folder}")


def _git_files() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _below(files: Iterable[Path], *folders: str) -> list[Path]:
    return [file for file in files if _name(file).startswith(folders)]


def _lines(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def _tokens(text: str) -> int:
    return sum(token.type not in SPACE for token in tokenize.generate_tokens(io.StringIO(text).readline))


def _words(text: str) -> int:
    return len(text.split())


def _docstrings(text: str) -> int:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(_words(ast.get_docstring(node) or "") for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))


if __name__ == "__main__":
    main()

"""Everything one Python file does to Megatron Core, as findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from mcore_unpatch.findings import reasons
from mcore_unpatch.findings.finding import Finding, Live
from mcore_unpatch.judge import answer, hook_takers, judge
from mcore_unpatch.judge.case import Case
from mcore_unpatch.judge.demands import CALL
from mcore_unpatch.judge.statement import IDLE, RAISES, Statement
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, Version, show
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.conditions import call_sites
from mcore_unpatch.scanner.conditions.live import Liveness
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.related import restores
from mcore_unpatch.scanner.related.restores import Surroundings
from mcore_unpatch.scanner.shapes import calls, helpers, registries, source_rewrites, sysmodules
from mcore_unpatch.scanner.shapes.assignments import FUNCTION_PARTS, from_assignment
from mcore_unpatch.scanner.shapes.install import Install, wraps
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.quoting import Text
from mcore_unpatch.scanner.sources.scopes import Scope, last_name

_STEPS_OF_A_FINDING = 10
_MOST_CONDITIONS = 3  # that are named
_AS_TEXT = re.compile(r"""(?:__version__\s*[<>]=?\s*["']|["']\s*[<>]=?\s*[\w.]*__version__)""")
_THERE = "Megatron has just that there: it changes nothing, unless it takes another patch off"
_HOW = {
    "class-attr": "on the class",
    "class-of-instance": "on the class of an instance",
    "instance-attr": "on an instance",
    "setattr": "with setattr",
    "module-attr": "in its module",
    "sys-modules": "through sys.modules",
    "string-target": "by its dotted name",
    "source-rewrite": "with rewritten source",
    "mock": "with a mock",
}


def findings_in(
    resolver: Resolver, releases: Callable[[str], tuple[Version, ...]], mocks: bool = True
) -> list[Finding]:
    """The findings of one file, in order of their lines; `releases` tells by path what they are judged for."""
    path, installs = resolver.model.path, collect(resolver, mocks)
    findings = _of_installs(installs, resolver, releases(path)) if installs else []
    if prefilter.may_take_hook(resolver.model.data):
        findings += hook_takers.findings_in(resolver, releases(path), Text(resolver.lines))
    return sorted(findings, key=lambda finding: finding.sort_key)


def _of_installs(collected: list[Install], resolver: Resolver, versions: tuple[Version, ...]) -> list[Finding]:
    installs = restores.split_restores(collected, resolver)
    around, undone = Surroundings(installs, resolver), restores.Undone(resolver)
    text, liveness = Text(resolver.lines), Liveness()
    by_reach = sorted(installs, key=lambda install: not install.on_instance and install.shape != "instance-attr")
    shapes = {install.target: install.shape for install in by_reach if install.shape != "mock"}  # a class's goes last
    cases = Case.all_of(installs, resolver, shapes)
    findings = [_finding(case, versions, around, undone, text, liveness) for case in cases]
    for case in cases:
        case.part()
    return findings


def collect(resolver: Resolver, mocks: bool = True) -> list[Install]:
    """Every install, restores still among them; without `mocks` not those that a test makes to test something."""
    installs: list[Install] = []
    in_loops = sysmodules.from_loops(resolver)
    seen = {(id(install.node), install.target) for install in in_loops}
    claimed = {id(install.node) for install in in_loops}
    for site in resolver.model.sites:
        if id(site.node) not in claimed:
            installs += from_assignment(site, resolver)
    for site in resolver.model.calls:
        if id(site.node) not in claimed:
            installs += calls.from_call(site, resolver, mocks)
    for site in helpers.from_installers(resolver):
        installs += helpers.from_helper_call(site, resolver)
    if prefilter.STRING_TARGETS.search(prefilter.plain(resolver.model.data)) is not None:
        installs += [install for site in resolver.model.literals for install in registries.from_literal(site, resolver)]
    if prefilter.SOURCE_FILES.search(resolver.model.data) is not None:
        installs += [install for site in resolver.model.literals for install in source_rewrites.from_texts(site)]
    installs += _rewritten(installs, resolver)
    installs += restores.removals(installs, resolver)
    first: dict[tuple[int, str], Install] = {}
    for install in installs:
        install.shape = "source-rewrite" if install.site.in_text else install.shape
        first.setdefault((id(install.node), install.target), install)
    return in_loops + [install for key, install in first.items() if key not in seen]


def _rewritten(installs: list[Install], resolver: Resolver) -> list[Install]:
    """Source rewrites; where the product is then assigned, that assignment is the patch and takes the shape."""
    assigned: dict[tuple[str, Scope | None], list[Install]] = {}
    for install in installs:
        assigned.setdefault((install.target, install.site.scope.function), []).append(install)
    rewrites = []
    for rewrite in source_rewrites.from_module(resolver):
        products = assigned.get((rewrite.target, rewrite.site.scope.function), [])
        for install in products:
            install.shape = "source-rewrite"
        if not products:
            rewrites.append(rewrite)
    return rewrites


def _finding(
    case: Case,
    versions: tuple[Version, ...],
    around: Surroundings,
    undone: restores.Undone,
    text: Text,
    liveness: Liveness,
) -> Finding:
    install, resolver = case.install, case.resolver
    resolver.project.effort.spend(_STEPS_OF_A_FINDING)
    temporary = undone.is_temporary(install)
    node = install.node
    assert isinstance(node, ast.stmt | ast.expr)
    alive = liveness.of(install, resolver.at(install.site)._replace(line=node.lineno))
    install.judged = tuple(dict.fromkeys(map(known.newest, filter(alive.on, versions)))) or (known.minors()[-1],)
    verdict = answer.judge(install, case.new, resolver)
    if temporary:
        verdict = answer.for_a_while(verdict)
    # What breaks on several releases is said once, of the newest first.
    replaces = not verdict.rule.startswith("MCU9")  # mocks replace nothing
    judged = [version for version in versions if replaces and alive.on(version)]
    models = {version: known.newest(version) for version in judged}
    by_model = {model: judge.on(case, model) for model in dict.fromkeys(models.values())}
    by_version = {version: by_model[model] for version, model in models.items()}
    said = [statement for some in reversed(by_version.values()) for statement in some]
    breaks = judge.texts_on({model: by_model[model] for model in reversed(by_model)}, case)
    fails = [show(version) for version, some in by_version.items() if any(one.kind == RAISES for one in some)]
    raising = [statement for statement in said if statement.kind == RAISES]
    raised_by = dict.fromkeys(name for statement in raising for name in (statement.caller, *statement.also))
    asked = dict.fromkeys(one.name if one.demand is not None and one.when == CALL else "" for one in raising)
    end_line = node.end_lineno or node.lineno
    return Finding(
        rule=verdict.rule,
        path=resolver.model.path,
        line=node.lineno,
        column=text.characters(node.lineno, node.col_offset) + 1,
        end_line=end_line,
        target=install.target,
        shape=install.shape,
        seam=verdict.seam,
        confidence="certain" if install.sure else "possible" if install.possible else "likely",
        temporary=temporary,
        message=_message(install, [*breaks, *_when(alive, versions, resolver.lines)]),
        replacement=verdict.replacement,
        answer=verdict.answer,
        steps=verdict.steps,
        related=around.related_lines(install),
        in_test=is_test(resolver.model.path),
        live=alive,
        installed_by=call_sites.installer(install.site.scope),
        scope=install.site.scope.qualified_name,
        breaks=tuple(breaks),
        effect=_effect(said, install, alive),
        fails=tuple(fails),
        callers=tuple(raised_by),
        asked=tuple(asked) if all(asked) else (),
        affected=tuple(show(version) for version, some in by_version.items() if some),
        hands_on=bool(case.original_calls),
        patches_more=install.patches_more,
        upstream_has=_THERE if install.sure and all(map(case.sets_what_is_there, install.judged)) else "",
        source=text.between(node.lineno, end_line),
    )


def _effect(said: list[Statement], install: Install, alive: Live) -> str:
    """What the releases do to a patch; one that runs only where its name is missing fills a gap, as it is meant to."""
    if any(statement.kind == RAISES for statement in said):
        return "breaks"
    if all(statement.kind == IDLE for statement in said) and len(alive.releases) < len(RELEASES):
        return "changes" if said and any(known.has(install.target, release) for release in alive.releases) else ""
    return "changes" if said else ""


def _when(alive: Live, versions: tuple[Version, ...], lines: list[str]) -> list[str]:
    """On which releases a patch is installed, where not on all, and what else that depends on."""
    as_text = (guard.line for guard in alive.guards if not guard.path and _AS_TEXT.search(lines[guard.line - 1]))
    said = [f"line {line} compares versions as text, to which 0.9 is newer than 0.19: parse both" for line in as_text]
    if versions and not any(map(alive.on, versions)):
        said.append(f"never runs on megatron-core {' or '.join(map(show, versions))}{alive.elsewhere}")
    elif str(alive) != "any":
        said.append(f"runs only on megatron-core {alive}")
    said += alive.depends[:_MOST_CONDITIONS]
    more = len(alive.depends) - _MOST_CONDITIONS
    return [*said, f"{more} more condition{'s' * (more > 1)} above it"] if more > 0 else said


def _message(install: Install, breaks: list[str]) -> str:
    short = ".".join(install.target.split(".")[-1 if install.possible else -2 :])  # of which class is not known
    if install.shape == "submodule":
        text = f"replaces the submodule `{short}`"
    elif isinstance(install.node, ast.Delete) or (install.shape == "setattr" and install.value is None):
        text = f"removes `{short}`"
    elif install.adds or not (
        install.shape == "mock"
        or (isinstance(install.value, ast.Call) and wraps(install.site.target, install.value))  # it is read first
        or not all(reasons.adds(install.target, release) for release in install.judged)
    ):
        text = f"adds `{short}` {_HOW[install.shape]}"
    elif (part := getattr(install.site.target, "attr", "")) in FUNCTION_PARTS:
        text = f"replaces `{part}` of `{short}`"
    else:  # a finder may as well leave a module as it is
        verb = "may replace" if install.why.startswith("a finder") else "replaces"
        by_name = (
            install.possible and install.base is not None and last_name(install.base).lower().endswith(("cls", "class"))
        )
        text = f"{verb} `{short}` {'on a class' if by_name else _HOW[install.shape]}"
    parts = [text, *breaks]
    if not install.sure:
        parts.append(f"{'possible' if install.possible else 'likely'}, judging by {install.why}")
    elif install.why.startswith("and "):
        parts[0] += f" {install.why}"
    elif install.why:
        parts.append(f"resolved from {install.why}")
    return "; ".join(parts)

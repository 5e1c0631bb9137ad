"""Every small way in which a statement of a judge is broken: the nodes of its syntax tree, and what each may become.

What only shapes words is left out by rule, not one by one (`_children`, `_wording`): annotations, decorators and format specifications; choices
between two texts inside a longer one; digits that are rounded to; the order in which `join` lists names; how many names a sentence lists (SHOWN_*).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_PAIRS = (
    ("min", "max"), ("any", "all"), ("idxmin", "idxmax"), ("argmin", "argmax"), ("head", "tail"), ("first", "last"), ("minimum", "maximum"),
    ("nsmallest", "nlargest"), ("cummin", "cummax"), ("isna", "notna"), ("floor", "ceil"), ("union", "intersection"),
)  # fmt: skip
SWAPPED = {one: other for a, b in _PAIRS for one, other in ((a, b), (b, a))}
WORDS = "SHOWN"
Change = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One changed statement of a module's top level. first, last: the lines that are run where it matters; function: whose, such as
    "Class.method()", "" for the module's own; what: before -> after.
    """

    first: int
    last: int
    function: str
    what: str
    statement: ast.stmt


def mutations(source: str) -> Iterator[Mutation]:
    """Every mutation of a module, statement by statement of its top level, in the order of its tree; none is made twice."""
    for statement in ast.parse(source).body:
        listed = isinstance(statement, ast.Assign) and ast.unparse(statement).startswith(WORDS)
        if listed or isinstance(statement, ast.Import | ast.ImportFrom | ast.If | ast.Expr):
            continue
        made = {ast.dump(statement)}
        for path, node, function, (first, last) in _places(statement, (), "", (statement.lineno, statement.end_lineno or 0)):
            for change in changes(node):
                changed = copy.deepcopy(statement)
                before, after = _apply(changed, path, change)
                if (now := ast.dump(changed)) not in made:
                    made.add(now)
                    ast.fix_missing_locations(changed)
                    yield Mutation(first, last, function, f"{before} -> {after}", changed)


def changes(node: ast.AST) -> Iterator[Change]:
    """What a node may become. Each change takes a copy of the node and returns what to put in its place."""
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            yield lambda new: ast.BoolOp(ast.And() if isinstance(new.op, ast.Or) else ast.Or(), new.values)  # type: ignore[attr-defined]
        case ast.UnaryOp(op=ast.Not()):
            yield lambda new: new.operand  # type: ignore[attr-defined]
        case ast.If() | ast.IfExp() | ast.While():
            yield from _guarded(node)
        case ast.comprehension():
            yield from (_without_condition(index) for index in range(len(node.ifs)))
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _listed(node.left) and not _listed(node.right):
            yield lambda new: ast.BinOp(new.left, ARITHMETIC[type(new.op)](), new.right)  # type: ignore[attr-defined]
        case ast.Constant(value=bool() | int() | float() as value):
            yield from _moved(value)
        case ast.Name(id="min" | "max" | "any" | "all", ctx=ast.Load()):
            yield lambda new: ast.Name(SWAPPED[new.id], ast.Load())  # type: ignore[attr-defined]
        case ast.Call():
            yield from _called(node)
        case ast.Slice():
            yield from _sliced(node)


def _compared(node: ast.Compare) -> Iterator[Change]:
    for place, operator in enumerate(node.ops):
        for other in COMPARISONS[type(operator)]:

            def change(new: ast.AST, place: int = place, other: type[ast.cmpop] = other) -> ast.AST:
                assert isinstance(new, ast.Compare)
                new.ops[place] = other()
                return new

            yield change


def _guarded(node: ast.If | ast.IfExp | ast.While) -> Iterator[Change]:
    """The condition is still evaluated, as it may bind a name. An endless loop tells nothing, so a while only never starts."""
    for wanted in (False,) if isinstance(node, ast.While) else (True, False):

        def change(new: ast.AST, wanted: bool = wanted) -> ast.AST:
            assert isinstance(new, ast.If | ast.IfExp | ast.While)
            new.test = ast.BoolOp(ast.Or() if wanted else ast.And(), [new.test, ast.Constant(wanted)])
            return new

        yield change


def _without_condition(index: int) -> Change:
    def change(new: ast.AST) -> ast.AST:
        assert isinstance(new, ast.comprehension)
        new.ifs[index] = ast.BoolOp(ast.Or(), [new.ifs[index], ast.Constant(True)])
        return new

    return change


def _moved(value: bool | int | float) -> Iterator[Change]:
    if isinstance(value, bool):
        near: tuple[float, ...] = (not value,)
    else:
        near = (value + 1, value - 1) if isinstance(value, int) else (value * 2, value / 2)
    yield from (lambda new, other=other: ast.Constant(other) for other in near)


def _called(node: ast.Call) -> Iterator[Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Attribute) and node.func.attr in SWAPPED:
        yield _opposite
    if name in {"sorted", "reversed"}:
        yield _reversed
    if name == "Finding" and node.args and not isinstance(node.args[0], ast.Constant | ast.Compare):
        yield _denied
    if name == "range" and not isinstance(node.args[-1], ast.Constant):
        yield _shorter
    two = [argument.id for argument in node.args[:2] if isinstance(argument, ast.Name)]
    if name not in {*SWAPPED, "isinstance", "zip"} and len(two) == 2 and two[0] != two[1]:
        yield _turned


def _opposite(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    assert isinstance(new.func, ast.Attribute)
    new.func.attr = SWAPPED[new.func.attr]
    return new


def _reversed(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    return ast.Call(ast.Name("list", ast.Load()), [ast.Call(ast.Name("reversed", ast.Load()), [_listing(new)], [])], [])


def _listing(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("list", ast.Load()), [node], [])


def _denied(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    new.args[0] = ast.UnaryOp(ast.Not(), new.args[0])
    return new


def _shorter(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    new.args[-1] = ast.BinOp(new.args[-1], ast.Sub(), ast.Constant(1))
    return new


def _turned(new: ast.AST) -> ast.AST:
    assert isinstance(new, ast.Call)
    new.args[0], new.args[1] = new.args[1], new.args[0]
    return new


def _sliced(node: ast.Slice) -> Iterator[Change]:
    """One row more at the start, one row less at the end; bounds that are numbers are moved as numbers."""
    for side, operator in (("lower", ast.Add), ("upper", ast.Sub)):
        if getattr(node, side) is not None and not _number(getattr(node, side)):

            def change(new: ast.AST, side: str = side, operator: type[ast.operator] = operator) -> ast.AST:
                setattr(new, side, ast.BinOp(getattr(new, side), operator(), ast.Constant(1)))
                return new

            yield change


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _listed(node: ast.AST) -> bool:
    """Whether a side of a sum is text or a list, whose difference means nothing."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.ListComp | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


Span = tuple[int, int]
Path = tuple[tuple[str, int | None], ...]


def _places(node: ast.AST, path: Path, function: str, span: Span, words: bool = False) -> Iterator[tuple[Path, ast.AST, str, Span]]:
    """Every node that may change: how to get there, itself, the function (or Class.function) it stands in, the lines of its statement."""
    if isinstance(node, ast.stmt):
        span = (node.lineno, node.end_lineno or node.lineno)
    if isinstance(node, ast.If | ast.While):
        span = (node.lineno, node.test.end_lineno or node.lineno)
    yield path, node, function, span
    words = words or isinstance(node, ast.JoinedStr) or _joins(node)
    for step, child in _children(node):
        if not _wording(node, step[0], child, words):
            yield from _places(child, (*path, step), _inside(function, node), span, words)


def _inside(function: str, node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef):
        return f"{function}.{node.name}()".strip(".")
    return node.name if isinstance(node, ast.ClassDef) else function


def _children(node: ast.AST) -> Iterator[tuple[tuple[str, int | None], ast.AST]]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "format_spec", "bases", "type_comment"}:
            continue
        if isinstance(value, ast.AST):
            yield (name, None), value
        elif isinstance(value, list):
            yield from (((name, place), child) for place, child in enumerate(value) if isinstance(child, ast.AST))


def _wording(parent: ast.AST, field: str, child: ast.AST, words: bool) -> bool:
    """Whether a child only shapes words. words: it stands inside a longer text."""
    if isinstance(child, ast.IfExp) and words and _is_text(child.body) and _is_text(child.orelse):
        return True
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "round" and field == "args":
        return child is not parent.args[0]
    if isinstance(child, ast.keyword) and child.arg in {"strict", "encoding"}:
        return True
    if _joins(parent) and isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "sorted":
        return True
    return isinstance(child, ast.IfExp | ast.Subscript | ast.Compare | ast.Assign | ast.BinOp) and WORDS in ast.unparse(child)


def _joins(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _apply(root: ast.AST, path: Path, change: Change) -> tuple[str, str]:
    """Change the node at the end of a path, in place; it as source before and after."""
    parent, node, last = root, root, _NOWHERE
    for last in path:
        parent, node = node, _step(node, last)
    shown = node.test if isinstance(node, ast.If | ast.While) else node
    before = _source(shown)
    new = ast.copy_location(change(node), node)
    name, place = last
    if place is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[place] = new
    return before, _source(new.test if isinstance(new, ast.If | ast.While) else new)


_NOWHERE: tuple[str, int | None] = ("", None)


def _step(node: ast.AST, step: tuple[str, int | None]) -> ast.AST:
    name, place = step
    child = getattr(node, name)
    return child if place is None else child[place]  # type: ignore[no-any-return]


def _source(node: ast.AST) -> str:
    return ast.unparse(node).strip().split("\n")[0]

"""Puts a changed statement in the place of the one that is loaded, so that no module has to be imported again for a mutant.

Functions keep their identity and get the other code, so everybody who imported them calls the mutant. The statement is run in a copy of the module's own
names. A constant is set in every module that imported it by its name.
"""

from __future__ import annotations
import __future__

import ast
import sys
from types import FunctionType, ModuleType
from typing import Any


class NotSwapped(Exception):
    """The change cannot be put in place; it says which statement."""


def swap(module: ModuleType, statement: ast.stmt) -> None:
    """Make `statement`, a statement of the module's top level, the one that counts. Raises NotSwapped; may raise what the statement raises."""
    names = dict(module.__dict__)
    code = compile(
        ast.Module([statement], []), module.__file__ or "", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True
    )
    exec(code, names)
    if isinstance(statement, ast.FunctionDef):
        _swap_function(getattr(module, statement.name), names[statement.name])
    elif isinstance(statement, ast.ClassDef):
        _swap_class(getattr(module, statement.name), names[statement.name])
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for name in (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)):
            _set_everywhere(name, getattr(module, name), names[name])
    else:
        raise NotSwapped(f"{module.__name__}:{statement.lineno} is neither a function, nor a class, nor a constant")


def _swap_function(old: Any, new: Any) -> None:
    if not isinstance(old, FunctionType):
        raise NotSwapped(f"{old!r} is not a plain function")
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _swap_class(old: type, new: type) -> None:
    """Methods, properties, and the defaults of a dataclass's fields (they are the defaults of its generated __init__)."""
    for name, value in vars(new).items():
        before = vars(old).get(name)
        if isinstance(value, FunctionType) and isinstance(before, FunctionType):
            if name == "__init__" or not name.startswith("__"):
                _swap_function(before, value)
        elif isinstance(value, property) and isinstance(before, property):
            _swap_function(before.fget, value.fget)
        elif isinstance(value, staticmethod | classmethod) and isinstance(before, staticmethod | classmethod):
            _swap_function(before.__func__, value.__func__)


def _set_everywhere(name: str, old: object, new: object) -> None:
    for module in list(sys.modules.values()):
        if module.__name__.split(".")[0] in {"suite", "reports", "fixtures"} and module.__dict__.get(name, _NOTHING) is old:
            setattr(module, name, new)


_NOTHING = object()

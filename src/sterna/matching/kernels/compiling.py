"""How kernels are compiled and kept on disk, and instructions that Python does not have."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])


def digest(folder: Path) -> str:
    """A digest of all source files in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        source = path.read_bytes()
        found.update(f"{path.name} {len(source)}\n".encode())
        found.update(source)
    return found.hexdigest()


_DIGEST = digest(Path(__file__).parent)


class KernelCache(FunctionCache):
    """Compiled code on disk, valid as long as no kernel file changes.

    Numba itself would look at the file of the function only. Compiled code contains the functions
    that it calls, and those may come from another file.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=_DIGEST,
        )


def kernel(function: Function) -> Function:
    """Compile, and keep the result on disk if there is a place for it.

    Without `_nrt` numba does not count references to arrays, which would cost more than the work
    itself here. The price is that kernels cannot create arrays.
    """
    compiled: Any = njit(nogil=True, _nrt=False)(function)
    with suppress(RuntimeError):  # If neither beside the source nor at home files can be written.
        compiled._cache = KernelCache(function)
    made: Function = compiled
    return made


@intrinsic
def lowest_bit(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
    """The place of the lowest bit that is set; there must be one."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Begin to load an entry of an array that will be needed soon."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        _prefetch(builder, place)
        return context.get_dummy_value()

    return types.void(array, index), code


@intrinsic
def prefetch_object(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    """Begin to load what is at an address."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        _prefetch(builder, place)
        return context.get_dummy_value()

    return types.void(types.int64), code


def _prefetch(builder: Any, place: Any) -> None:
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
    name = f"llvm.prefetch.p0{'' if place.type.is_opaque else 'i64'}"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [place, number(0), number(3), number(1)])

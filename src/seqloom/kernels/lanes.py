"""Eight float32 numbers at once inside compiled loops, where a compiler's own vectoriser cannot be relied on.

A row whose length is a multiple of `LANES` is walked with `load`, `multiply_add` and `store`; several sums held in
variables at once share what is loaded. LLVM turns a value of eight into whatever the processor has. This module needs
Numba when it is imported, so whoever uses it imports it when something is compiled.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.cgutils import ir
from numba.extending import intrinsic, models, register_model

LANES = 8
FLOATS, WHOLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
CONTRACT = ("contract",)  # a product and a sum may become one instruction
LOG2_E = 1.4426950408889634
# 2^f for 0 <= f < 1, to 1e-7: minimax polynomial, highest power first
POLYNOMIAL = (1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 9.9999994e-1)


class Lanes(types.Type):
    """Eight float32 numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """How LLVM holds them."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


lanes = Lanes()


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]], inbounds=True), FLOATS.as_pointer())


def _same(value: float) -> Any:
    return ir.Constant(FLOATS, [ir.Constant(ir.FloatType(), value)] * LANES)


def _spread(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(WHOLES, [ir.Constant(ir.IntType(32), 0)] * LANES))


@intrinsic
def load(typing: Any, array: Any, place: Any) -> Any:
    """load(array, place): eight neighbours of a contiguous float32 array; places count over all its axes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature, arguments), align=4)

    return lanes(array, types.int64), generate


@intrinsic
def store(typing: Any, array: Any, place: Any, values: Any) -> Any:
    """store(array, place, values)"""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature, arguments), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), generate


@intrinsic
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """prefetch(array, place): a hint that this place is needed soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.bitcast(_address(context, builder, signature, arguments), byte)
        builder.call(function, [place, ir.Constant(number, 1), ir.Constant(number, 3), ir.Constant(number, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """spread(value): the same number eight times."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return lanes(types.float32), generate


@intrinsic
def multiply_add(typing: Any, one: Any, other: Any, more: Any) -> Any:
    """multiply_add(one, other, more): one * other + more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(arguments[0], arguments[1], flags=CONTRACT)
        return builder.fadd(product, arguments[2], flags=CONTRACT)

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def total(typing: Any, values: Any) -> Any:
    """total(values): the sum of the eight."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, values = ir.IntType(32), arguments[0]
        for half in (4, 2, 1):
            places = [ir.Constant(number, half + index) for index in range(half)]
            lower = [ir.Constant(number, index) for index in range(half)]
            kind = ir.VectorType(number, half)
            values = builder.fadd(
                builder.shuffle_vector(values, values, ir.Constant(kind, lower)),
                builder.shuffle_vector(values, values, ir.Constant(kind, places)),
            )
        return builder.extract_element(values, ir.Constant(number, 0))

    return types.float32(lanes), generate


@intrinsic
def logistic(typing: Any, values: Any) -> Any:
    """logistic(values): 1 / (1 + exp(-x)) of each.

    exp(-x) = 2^m 2^f with m whole: 2^m is m put into the exponent of a float, 2^f a polynomial.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        power = builder.fmul(arguments[0], _same(-LOG2_E))
        power = builder.select(builder.fcmp_ordered("<", power, _same(126.0)), power, _same(126.0))
        power = builder.select(builder.fcmp_ordered(">", power, _same(-126.0)), power, _same(-126.0))
        whole = builder.fptosi(builder.fadd(power, _same(127.0)), WHOLES)  # rounds down: it is positive
        rest = builder.fsub(power, builder.fsub(builder.sitofp(whole, FLOATS), _same(127.0)))
        value = _same(POLYNOMIAL[0])
        for coefficient in POLYNOMIAL[1:]:
            value = builder.fadd(builder.fmul(value, rest, flags=CONTRACT), _same(coefficient), flags=CONTRACT)
        shift = ir.Constant(WHOLES, [ir.Constant(ir.IntType(32), 23)] * LANES)
        exponential = builder.fmul(value, builder.bitcast(builder.shl(whole, shift), FLOATS))
        return builder.fdiv(_same(1.0), builder.fadd(_same(1.0), exponential))

    return lanes(lanes), generate

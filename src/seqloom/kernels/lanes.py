"""Eight float32 numbers at once inside compiled loops, where a compiler's own vectoriser cannot be relied on.

A row whose length is a multiple of `LANES` is walked with `load`, `multiply_add` and `store`; several sums held in
variables at once share what is loaded. LLVM turns a value of eight into whatever the processor has. This module needs
Numba when it is imported, so whoever uses it imports it when something is compiled. Compiled code that is kept from
earlier does not notice a change here: its own module must change too.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.cgutils import ir
from numba.extending import intrinsic as made_by_llvm
from numba.extending import models, register_model

LANES = 8
FLOATS, WHOLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)
CONTRACT = ("contract",)  # a product and a sum may become one instruction
LOG2_E = 1.4426950408889634
intrinsic: Any = made_by_llvm  # a type checker would take what it makes for called with what makes it
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


def _folded(builder: Any, values: Any, join: Any) -> Any:
    """Eight joined to one, half with half."""
    number = ir.IntType(32)
    for half in (4, 2, 1):
        places = [ir.Constant(number, half + index) for index in range(half)]
        lower = [ir.Constant(number, index) for index in range(half)]
        kind = ir.VectorType(number, half)
        values = join(
            builder.shuffle_vector(values, values, ir.Constant(kind, lower)),
            builder.shuffle_vector(values, values, ir.Constant(kind, places)),
        )
    return builder.extract_element(values, ir.Constant(number, 0))


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
def spread_from(typing: Any, array: Any, place: Any) -> Any:
    """spread_from(array, place): spread(array[place]) of a contiguous float32 array; a place counts over all its axes.

    An index in brackets may be negative, which is found out at every use; here it is not.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return _spread(builder, builder.load(builder.gep(data, [arguments[1]], inbounds=True), align=4))

    return lanes(array, types.int64), generate


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
        return _folded(builder, arguments[0], builder.fadd)

    return types.float32(lanes), generate


@intrinsic
def largest(typing: Any, values: Any) -> Any:
    """largest(values): of the eight."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], lambda one, other: _larger(builder, one, other))

    return types.float32(lanes), generate


def _larger(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other), one, other)


@intrinsic
def larger(typing: Any, one: Any, other: Any) -> Any:
    """larger(one, other): of each pair."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _larger(builder, *arguments)

    return lanes(lanes, lanes), generate


@intrinsic
def absolute(typing: Any, values: Any) -> Any:
    """absolute(values): of each, without its sign."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _larger(builder, arguments[0], builder.fsub(_same(0.0), arguments[0]))

    return lanes(lanes), generate


@intrinsic
def where_positive(typing: Any, values: Any, one: Any, other: Any) -> Any:
    """where_positive(values, one, other): of `one` where a value is above 0, else of `other`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", arguments[0], _same(0.0)), arguments[1], arguments[2])

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def divide(typing: Any, one: Any, other: Any) -> Any:
    """divide(one, other): one / other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return lanes(lanes, lanes), generate


def _exponential(builder: Any, values: Any) -> Any:
    """exp(x) = 2^m 2^f with m whole: 2^m is m put into the exponent of a float, 2^f a polynomial."""
    power = builder.fmul(values, _same(LOG2_E))
    power = builder.select(builder.fcmp_ordered("<", power, _same(126.0)), power, _same(126.0))
    power = builder.select(builder.fcmp_ordered(">", power, _same(-127.0)), power, _same(-127.0))
    whole = builder.fptosi(builder.fadd(power, _same(127.0)), WHOLES)  # rounds down: it is positive
    rest = builder.fsub(power, builder.fsub(builder.sitofp(whole, FLOATS), _same(127.0)))
    value = _same(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        value = builder.fadd(builder.fmul(value, rest, flags=CONTRACT), _same(coefficient), flags=CONTRACT)
    shift = ir.Constant(WHOLES, [ir.Constant(ir.IntType(32), 23)] * LANES)
    return builder.fmul(value, builder.bitcast(builder.shl(whole, shift), FLOATS))


@intrinsic
def exponential(typing: Any, values: Any) -> Any:
    """exponential(values): of each; 0 where it is no normal float any more, and never above 2^126."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _exponential(builder, arguments[0])

    return lanes(lanes), generate


@intrinsic
def logistic(typing: Any, values: Any) -> Any:
    """logistic(values): 1 / (1 + exp(-x)) of each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        raised = _exponential(builder, builder.fsub(_same(0.0), arguments[0]))
        return builder.fdiv(_same(1.0), builder.fadd(_same(1.0), raised))

    return lanes(lanes), generate

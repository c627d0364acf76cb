"""Lines of a word and its numbers, read many at once."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel

POWERS = 10.0 ** np.arange(23)  # all exact as doubles
SPACE, NEWLINE, RETURN, PLUS, MINUS, POINT, ZERO, SMALL_E, LARGE_E = (ord(c) for c in " \n\r+-.0eE")
MOST = 2**53 // 10 - 1  # another digit and the mantissa is still exact as a double
LARGEST = 3.4e38  # a little below the largest float32


@kernel
def parse_lines(
    text: np.ndarray,
    position: int,
    powers: np.ndarray,
    out: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int]:
    """Read lines `word number number …\\n` until `out` is full, the text ends or a line is not as plain as that.

    A mantissa below 2^53 and a power of ten up to 22 are exact, so one product or quotient of them is rounded as it
    should be (Clinger 1990); lines with other numbers are left to the caller, as are words with spaces.

    Args:
        text: (bytes,) whole lines, the last one ended too.
        position: where to begin.
        powers: `POWERS`.
        out: (lines, size) for the numbers.
        starts: (lines,) for the first byte of each word.
        ends: (lines,) for the byte after each word.

    Returns:
        How many lines were read, and where the first one begins that was not.
    """
    count, rows, size = text.shape[0], out.shape[0], out.shape[1]
    row = 0
    while row < rows and position < count:
        begin = position
        while text[position] != SPACE and text[position] != NEWLINE:
            position += 1
        if position == begin:
            return row, begin
        starts[row], ends[row] = begin, position
        for column in range(size):
            if text[position] != SPACE:
                return row, begin
            position += 1
            negative = text[position] == MINUS
            if negative or text[position] == PLUS:
                position += 1
            mantissa, digits, power, pointed = 0, 0, 0, False
            while True:
                digit = np.int64(text[position]) - ZERO
                if 0 <= digit <= 9:
                    if mantissa > MOST:
                        return row, begin
                    mantissa = mantissa * 10 + digit
                    digits += 1
                    if pointed:
                        power -= 1
                elif text[position] == POINT and not pointed:
                    pointed = True
                else:
                    break
                position += 1
            if digits == 0:
                return row, begin
            if text[position] == SMALL_E or text[position] == LARGE_E:
                position += 1
                down = text[position] == MINUS
                if down or text[position] == PLUS:
                    position += 1
                exponent, digits = 0, 0
                while digits < 4 and 0 <= np.int64(text[position]) - ZERO <= 9:
                    exponent = exponent * 10 + np.int64(text[position]) - ZERO
                    digits += 1
                    position += 1
                if digits == 0:
                    return row, begin
                power += -exponent if down else exponent
            if power < -22 or power > 22:
                return row, begin
            value = mantissa / powers[-power] if power < 0 else mantissa * powers[power]
            if value > LARGEST:
                return row, begin
            out[row, column] = -value if negative else value
        while text[position] == SPACE or text[position] == RETURN:
            position += 1
        if text[position] != NEWLINE:
            return row, begin
        position += 1
        row += 1
    return row, position

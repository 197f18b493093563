"""Ends of a run, and what each means, with a place for the address or row that it is about."""

from __future__ import annotations

from collections.abc import Mapping

(RUNNING, ENDED, LIMIT, BAD_CODE, BAD_ACCESS, UNWRITTEN, BAD_LOCAL_ROW, UNWRITTEN_LOCAL, BAD_EXTENT, BAD_SCALE) = range(
    10
)
BAD_CONFIG, NO_FACTOR, NOT_SIMULATED, FLOATS_OFF, MISALIGNED, NOTES_FULL, UNFENCED = range(10, 17)
LOOP_UNSET, LOOP_TOO_LARGE, LOOP_SUMS_APART, UNROLL, LOOP_TOO_LONG = range(17, 22)

MEANINGS: Mapping[int, str] = {
    LIMIT: "the limit of instructions is reached",
    BAD_CODE: "there is no instruction",
    BAD_ACCESS: "{about:#x} is not memory",
    UNWRITTEN: "the bytes from {about:#x} on were not written",
    UNFENCED: "the bytes from {about:#x} on were moved out, and no fence has waited for that",
    BAD_LOCAL_ROW: "local row {about} does not exist, or lies in the wrong memory",
    UNWRITTEN_LOCAL: "local row {about} has elements that were not written",
    BAD_EXTENT: "the block is wider or longer than the array",
    BAD_SCALE: "the scale is not a number",
    BAD_CONFIG: "the fields contradict each other",
    NO_FACTOR: "the left factor is no block",
    LOOP_UNSET: "extents, addresses and strides were not all set since the loop before",
    LOOP_TOO_LARGE: "its blocks fill more than half of the scratchpad or of the accumulator",
    LOOP_TOO_LONG: "it is more products of blocks than are simulated at once",
    LOOP_SUMS_APART: "something must be added once before each time that sums leave, zeros at least",
    NOT_SIMULATED: "this is not simulated",
    MISALIGNED: "{about:#x} is no multiple of the bytes that are read or written",
    FLOATS_OFF: "floating point is off: the program has not turned it on",
}

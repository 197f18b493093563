"""Damaged model files: whatever is in them, the compiler ends with an artifact or with one of its own errors.

valid file --bytes changed, cut, doubled; fields of the protobuf changed--> compile --> artifact | UserError
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import UserError
from partitioner.planners.levels import O0
from tests.fuzz.onnx_graphs import models
from tests.small_models import classifier

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
VALID = classifier().SerializeToString()
# No extents of some ten thousand: programs too long for the code space are refused only after they were made.
INTEGERS = (0, 1, -1, 2, 7, 255, 1 << 31, (1 << 63) - 1, -(1 << 63))
NUMBERS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))
TEXTS = ("", "x", "y", "w1", "Conv", "Loop", "../../x", "a b;$(c)", "\x00", "\u2028" * 9)


def compile_bytes(data: bytes) -> str:
    """What came of a file of these bytes. Raises whatever is no UserError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        try:
            _ = compile_model(path, "stcp920", CompileOptions(O0())).artifact
        except UserError as error:
            return type(error).__name__ if str(error) else "an error without words"
    return "compiles"


def messages(message: Message) -> Iterator[Message]:
    """The message and all inside it, in order."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in [value] if isinstance(value, Message) else value:
                yield from messages(item)


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """The valid file with a few bytes changed, a stretch of it left out, or a stretch repeated."""
    data = bytearray(VALID)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data) - 1))
        stop = min(len(data), start + draw(st.integers(1, 40)))
        match draw(st.sampled_from(["byte", "cut", "repeat", "end"])):
            case "byte":
                data[start] = draw(st.integers(0, 255))
            case "cut":
                del data[start:stop]
            case "repeat":
                data[start:start] = data[start:stop]
            case "end":
                del data[start:]
        if not data:
            break
    return bytes(data)


@st.composite
def damaged_fields(draw: st.DrawFn, valid: st.SearchStrategy[onnx.ModelProto]) -> bytes:
    """A valid model with a few fields set to other values, cleared, doubled, or moved to another place."""
    model = onnx.ModelProto()
    model.CopyFrom(draw(valid))
    for _ in range(draw(st.integers(1, 3))):
        inside = [message for message in messages(model) if message.DESCRIPTOR.fields]
        # Messages of all kinds alike: most of a file are the dimensions of its shapes.
        kind = draw(st.sampled_from(sorted({message.DESCRIPTOR.name for message in inside})))
        message = draw(st.sampled_from([m for m in inside if m.DESCRIPTOR.name == kind]))
        _damage(draw, message, draw(st.sampled_from(list(message.DESCRIPTOR.fields))))
    data: bytes = model.SerializeToString()
    return data


def _damage(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    value = getattr(message, field.name)
    repeated = hasattr(value, "append") or hasattr(value, "add")
    if draw(st.integers(0, 4)) == 0:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if not repeated:
            value.SetInParent()
        elif len(value) > 1 and draw(st.booleans()):
            del value[draw(st.integers(0, len(value) - 1))]
        elif len(value):
            value.add().CopyFrom(value[draw(st.integers(0, len(value) - 1))])
        else:
            value.add()
    elif not repeated:
        setattr(message, field.name, _other(draw, field))
    elif len(value) and draw(st.booleans()):
        value[draw(st.integers(0, len(value) - 1))] = _other(draw, field)
    else:
        value.append(_other(draw, field))


def _other(draw: st.DrawFn, field: FieldDescriptor) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return draw(st.sampled_from(TEXTS))
        case FieldDescriptor.TYPE_BYTES:
            return draw(st.binary(max_size=24))
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return draw(st.sampled_from(NUMBERS))
        case FieldDescriptor.TYPE_ENUM:
            return draw(st.sampled_from([value.number for value in field.enum_type.values]))
        case FieldDescriptor.TYPE_INT32:
            return draw(st.sampled_from([number for number in INTEGERS if abs(number) < 1 << 31]))
        case FieldDescriptor.TYPE_UINT64:
            return draw(st.sampled_from([number for number in INTEGERS if number >= 0]))
    return draw(st.sampled_from(INTEGERS))


def ends_well(data: bytes) -> None:
    """Whether it compiles or is refused is for the statistics; that nothing else escapes is the test."""
    outcome = compile_bytes(data)
    event(outcome)
    assert outcome != "an error without words"


def test_the_valid_file_compiles() -> None:
    assert compile_bytes(VALID) == "compiles"


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, derandomize=True)
@given(damaged_bytes())
def test_damaged_bytes(data: bytes) -> None:
    ends_well(data)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, derandomize=True)
@given(damaged_fields(st.just(classifier())))
@pytest.mark.commit
def test_damaged_fields(data: bytes) -> None:
    ends_well(data)


@pytest.mark.nightly
@settings(max_examples=400, deadline=None, suppress_health_check=SLOW)
@given(damaged_bytes())
def test_many_damaged_bytes(data: bytes) -> None:
    ends_well(data)


@pytest.mark.nightly
@settings(max_examples=400, deadline=None, suppress_health_check=SLOW)
@given(damaged_fields(st.just(classifier()) | models()))
def test_many_damaged_fields(data: bytes) -> None:
    ends_well(data)

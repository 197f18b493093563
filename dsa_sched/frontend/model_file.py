"""Reading a model file: everything that can be wrong with the file itself, before its operators matter.

    path  -->  ModelProto with external data resolved, nodes named; SHA-256 of all the bytes read

External data may lie only inside the model's own folder: a model from elsewhere must not read other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from dsa_sched.frontend.decomposition.fused_operators import FUSED
from dsa_sched.frontend.network.bindings import Bindings, bind_inputs
from dsa_sched.frontend.network.functions import inline_functions
from dsa_sched.frontend.network.names import keep_names_apart
from dsa_sched.frontend.network.network import graphs_of, name_nodes
from dsa_sched.frontend.network.refusals import RefusedNode
from dsa_sched.frontend.network.shapes import first_line, skeleton
from dsa_sched.frontend.network.spelling import spell_out
from dsa_sched.frontend.quantised.dialects import QUANTISED, without_dynamic_grids
from dsa_sched.frontend.rules.operators import Known, unknown_nodes
from hw_models.errors import ModelError, size_text

LARGEST_MODEL_BYTES = 2 << 30
SPELLED = {**QUANTISED, **FUSED}
"""Operators that are spelled out as others."""
LEAST_IR = 8
"""IR version of written files: every onnxruntime of the last years reads it."""
MOST_DIGITS = 18
BYTE_TYPES = frozenset([1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16])
"""TensorProto types of whole bytes: all but text, complex and sub-byte numbers."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model and the SHA-256 of its file, followed by its external data in order of first use.

    `refused` are nodes of types that nothing here computes; a model that has any is not checked further.
    """

    model: onnx.ModelProto
    sha256: str
    refused: tuple[RefusedNode, ...] = ()


def read_model(path: Path, *, known: Known = "compiled", bindings: Bindings | None = None) -> ModelFile:
    """Read and check one ONNX file. Raises ModelError naming the file, tensor or node, but not for `refused` ones.

    `known` decides which operators are not refused. Inputs among the `bindings` become constants.
    """
    model, digest = _parsed(path)
    bind_inputs(model, bindings or {})
    return _checked(model, str(path), digest, known)


def file_digest(path: Path) -> str:
    """SHA-256 of a file and its external data, as in `ModelFile`, without checking the model. Raises ModelError."""
    return _parsed(path)[1]


def _parsed(path: Path) -> tuple[onnx.ModelProto, str]:
    """The model of a file with its external data, and their SHA-256."""
    raw = _bytes_of(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except DecodeError as error:
        raise ModelError(
            str(path),
            needs="a complete ONNX model",
            has=f"{size_text(len(raw))} that do not parse: truncated or not ONNX",
        ) from error
    if not model.ir_version or not model.graph.node:
        raise ModelError(str(path), needs="an ONNX model with at least one node", has="a file without one")
    _require_text(model, path)
    digest = hashlib.sha256(raw)
    _resolve_external(path, model, digest, len(raw))
    return model, digest.hexdigest()


def _require_text(model: onnx.ModelProto, path: Path) -> None:
    """Require names in UTF-8: others break every later step, each in its own way."""
    try:
        names = [*_names(model)]
    except UnicodeDecodeError:
        names = [b""]
    if not all(isinstance(name, str) for name in names):
        raise ModelError(str(path), needs="names in UTF-8", has="other bytes; the file is damaged or not ONNX")


def _names(model: onnx.ModelProto) -> Iterator[str | bytes]:
    graph = model.graph
    yield graph.name
    for item in (*graph.input, *graph.output, *graph.value_info):
        yield item.name
        yield from (dim.dim_param for dim in item.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (text for attribute in node.attribute for text in (attribute.name, attribute.ref_attr_name))
    yield from (item.domain for item in model.opset_import)


def checked_model(
    model: onnx.ModelProto,
    who: str,
    *,
    sha256: str | None = None,
    known: Known = "compiled",
    bindings: Bindings | None = None,
) -> ModelFile:
    """Check a model in memory like a file. Its hash is that of its deterministic serialisation, which is computed if
    the caller does not give it.
    """
    digest = sha256 or hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    bind_inputs(model, bindings or {})
    return _checked(model, who, digest, known)


def _bytes_of(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > LARGEST_MODEL_BYTES:
            raise ModelError(str(path), needs=f"at most {size_text(LARGEST_MODEL_BYTES)}", has=size_text(size))
        return path.read_bytes()
    except OSError as error:
        raise ModelError(str(path), needs="a file that can be read", has=error.strerror or str(error)) from error


def _checked(model: onnx.ModelProto, who: str, sha256: str, known: Known) -> ModelFile:
    """The model without functions, all nodes named, no name like those that rewrites make. Operators first, because
    the checker would stop at the first unknown one."""
    inline_functions(model, who)
    name_nodes(model)
    without_dynamic_grids(model)
    spell_out(model, SPELLED)
    keep_names_apart(model, who)
    refused = unknown_nodes(model, known)
    if not refused:
        _check(model, who)
    return ModelFile(model, sha256, refused)


def _check(model: onnx.ModelProto, who: str) -> None:
    """Raises ModelError for a model that is not valid, whatever its operators."""
    if not model.graph.output:
        raise ModelError(
            who,
            needs="at least one output",
            has="none, so that nothing would be computed",
            change="list the values that you want as outputs of the graph when you export it",
        )
    if model.graph.sparse_initializer:
        raise ModelError(who, needs="dense constants", has="sparse constants")
    model.ir_version = min(model.ir_version, _needed_ir(model))
    _require_values(model)
    for tensor in _tensors(model.graph):
        _require_data(tensor)
    light = skeleton(model)  # the weights were checked above, and inference finds the shapes that are not declared
    for item in (*light.graph.input, *light.graph.output):
        item.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(light, full_check=False)
    except Exception as error:  # the checker raises its own and protobuf's classes
        raise ModelError(who, needs="a valid ONNX model", has=first_line(error)) from error


def _needed_ir(model: onnx.ModelProto) -> int:
    """Version of the file format that its operators need. Writers claim their newest version, which may be newer than
    onnxruntime reads.
    """
    return max(LEAST_IR, int(helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)))


def _require_values(model: onnx.ModelProto) -> None:
    """Require attributes with a value: those that refer to a function's are valid only in functions."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelError(
                    f"{node.op_type} {node.name}",
                    needs=f"a value of attribute {attribute.name}",
                    has=f"a reference to {attribute.ref_attr_name}, which only functions may hold",
                )


def _require_data(tensor: TensorProto) -> None:
    """Require as many bytes as type and shape imply, for types that store bytes; others are checked when read."""
    if min(tensor.dims, default=0) < 0 or not tensor.data_type:
        raise ModelError(f"tensor {tensor.name}", needs="a type and extents of at least 0", has=str(list(tensor.dims)))
    if not tensor.HasField("raw_data"):
        return
    try:
        item_bytes = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError as error:
        raise ModelError(f"tensor {tensor.name}", needs="a known element type", has=str(tensor.data_type)) from error
    needed, available = prod(tensor.dims) * item_bytes, len(tensor.raw_data)
    if available != needed and tensor.data_type in BYTE_TYPES:
        shape = ", ".join(map(str, tensor.dims))
        raise ModelError(f"tensor {tensor.name}", needs=f"{size_text(needed)} for [{shape}]", has=size_text(available))


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Tensors of a graph, and of graphs inside its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in graphs_of(node):
            yield from _tensors(inner)


def _resolve_external(path: Path, model: onnx.ModelProto, digest: hashlib._Hash, size_bytes: int) -> None:
    """Load every external tensor into the model. Sizes add up under the same bound as the file's own."""
    folder = path.resolve().parent
    for tensor in _tensors(model.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        fields = {entry.key: entry.value for entry in tensor.external_data}
        location, offset = fields.get("location", ""), _whole(tensor.name, fields, "offset")
        file = _inside(folder, location, tensor.name)
        try:
            available = file.stat().st_size
            length = _whole(tensor.name, fields, "length") if "length" in fields else max(0, available - offset)
            if offset + length > available:
                raise ModelError(
                    f"tensor {tensor.name}",
                    needs=f"bytes {offset} to {offset + length} of {file.name}",
                    has=size_text(available),
                )
            size_bytes += length
            if size_bytes > LARGEST_MODEL_BYTES:
                raise ModelError(
                    str(path),
                    needs=f"at most {size_text(LARGEST_MODEL_BYTES)} with external data",
                    has="more than that",
                )
            with file.open("rb") as stream:
                stream.seek(offset)
                tensor.raw_data = stream.read(length)
        except OSError as error:
            raise ModelError(
                f"tensor {tensor.name}",
                needs=f"external data {location} next to the model",
                has=error.strerror or str(error),
            ) from error
        digest.update(tensor.raw_data)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _whole(tensor: str, fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "0")
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise ModelError(
            f"tensor {tensor}", needs=f"a whole number of at least 0 as external {name}", has=repr(text[:MOST_DIGITS])
        )
    return int(text)


def _inside(folder: Path, location: str, tensor: str) -> Path:
    """The real path of external data. Raises ModelError for one outside the model's folder, by `..` or by a link."""
    file = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not file.is_relative_to(folder):
        raise ModelError(
            f"tensor {tensor}",
            needs="external data inside the model's folder",
            has=repr(location),
            change="move the data next to the model and store a relative path",
        )
    return file

"""The JSON schema of chip files, for editors and for other tools that write them.

    the records of chip.py and parts.py --> one JSON schema (draft 2020-12)

It says what each field may be. Rules between fields (`chip_rules`) are told by `chip check` alone, except which parts
each kind of chip needs.
"""

from __future__ import annotations

from typing import Any

from hw_models.chip import PARTS_OF, Chip

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def chip_schema() -> dict[str, Any]:
    """The schema of a chip file; YAML is read as JSON has it."""
    schema = Chip.model_json_schema(by_alias=True)
    for part in ("dma", "assumed", "simt"):
        (given,) = (entry for entry in schema["properties"][part]["anyOf"] if "$ref" in entry)
        schema["properties"][part] = given
    kinds = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": [] if kind == "cores" else ["kind"]},
            "then": {"required": list(parts)},
        }
        for kind, parts in PARTS_OF.items()
    ]
    return {"$schema": DIALECT, **schema, "allOf": kinds}

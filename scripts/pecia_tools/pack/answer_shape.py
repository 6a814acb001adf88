# SPDX-License-Identifier: Apache-2.0
"""What an answer must look like: OpenAI's `response_format`, and `structured_outputs` of vLLM."""

from __future__ import annotations

import json
from typing import Any, Optional

from .json_line import Line, Path, kind

SHAPE_KEYS = ("response_format", "structured_outputs")
FORMATS = ("text", "json_object", "json_schema")


def read_shape(line: Line, container: dict[str, Any], path: Path) -> Optional[str]:
    """The shape as /shape of a shard has it; None where the line asks for none."""
    by_format = _of_format(line, container.get("response_format"), (*path, "response_format"))
    place = (*path, "structured_outputs")
    by_output = _of_output(line, container.get("structured_outputs"), place)
    if by_format is not None and by_output is not None:
        raise line.error(place, "asks for a shape, and response_format does too; leave one out")
    shape = by_format if by_format is not None else by_output
    return None if shape is None else json.dumps(shape, ensure_ascii=False)


def _of_format(line: Line, value: Any, path: Path) -> Optional[dict[str, Any]]:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") not in FORMATS:
        raise line.error((*path, "type"), f"must be one of {', '.join(FORMATS)}")
    if value["type"] == "text":
        return None
    if value["type"] == "json_object":
        return {"schema": {"type": "object"}}
    given = value.get("json_schema")
    schema = given.get("schema") if isinstance(given, dict) else None
    if not isinstance(schema, dict):
        raise line.error(
            (*path, "json_schema", "schema"), f"must be a JSON schema, not {kind(schema)}"
        )
    return {"schema": schema}


def _of_output(line: Line, value: Any, path: Path) -> Optional[dict[str, Any]]:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise line.error(path, 'must be one of {"json": …}, {"regex": "…"} and {"choice": […]}')
    key, shape = next(iter(value.items()))
    if key == "json" and isinstance(shape, dict):
        return {"schema": shape}
    if key == "regex" and isinstance(shape, str) and shape:
        return {"regex": shape}
    texts = isinstance(shape, list) and all(isinstance(text, str) and text for text in shape)
    if key == "choice" and texts and shape:
        return {"choice": shape}
    raise line.error((*path, key), "must be a schema (json), a text (regex) or texts (choice)")

"""Where the packages with trained networks are: in the folder `trained` of the virtual environment, off Python's path.

`make setup-all` installs them, without what they ask for; their code is never imported.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

__all__ = ["FOLDER", "Package", "installed", "missing"]

FOLDER = Path(sys.prefix) / "trained"
LONGEST_LICENCE = 40
"""Letters: some packages have the whole text where the name should be."""


@dataclass(frozen=True, slots=True)
class Package:
    version: str
    licence: str


def installed() -> dict[str, Package]:
    """What there is, by name."""
    found = distributions(path=[str(FOLDER)])
    return {canonicalize_name(each.metadata["Name"]): Package(each.version, _licence(each)) for each in found}


def missing(package: str) -> str:
    """Why a network of the package cannot be tested, else an empty text."""
    if package in installed():
        return ""
    return f"the package {package} is not in {FOLDER}: make setup-all installs it"


def _licence(distribution: Distribution) -> str:
    """By its expression, its short text, its classifier, or the first line of its file."""
    metadata = distribution.metadata
    short = [text for name in ("License-Expression", "License") for text in metadata.get_all(name) or ()]
    if short and len(short[0]) <= LONGEST_LICENCE:
        return str(short[0])
    for classifier in metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: OSI Approved :: "):
            return str(classifier).rsplit(" :: ", 1)[1]
    files = [path for path in distribution.files or () if path.name.upper().startswith("LICENSE")]
    text = files[0].read_text(encoding="utf-8") if files else "".join(short)
    names = ("Apache License", "MIT License")
    return next((name for name in names if name in text), "unknown")

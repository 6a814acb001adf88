# SPDX-License-Identifier: Apache-2.0
"""Formulas as TeX: what the author of a web page wrote, where the page keeps it, else made from MathML, or from Word's
mathematics (OMML)."""

from __future__ import annotations

from typing import Any, Optional

OMML = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
TEX_ENCODINGS = ("application/x-tex", "tex", "latex", "application/x-latex")
# Drawings of a formula that stands beside them as MathML or as a script.
DRAWN = frozenset(
    ("katex-html", "MathJax", "MathJax_Display", "MathJax_Preview", "MJX_Assistive_MathML")
)
_SPECIAL = {"−": "-", "\u2061": "", "\u2062": "", "\u2063": "", "\u2064": ""}  # invisible operators


def is_drawn(element: Any) -> bool:
    return element.tag in ("span", "div") and not DRAWN.isdisjoint(
        (element.get("class") or "").split()
    )


def formula(element: Any) -> Optional[str]:
    """$…$ or $$…$$ of a <math> element or of MathJax's <script type="math/tex">; None: it is no formula."""
    tag = _name(element)
    if tag == "script":
        kind, _, mode = (element.get("type") or "").partition(";")
        if kind.strip() != "math/tex":
            return None
        return _delimited(element.text or "", "display" in mode)
    if tag != "math":
        return None
    annotations = (e for e in element.iter() if _name(e) == "annotation")
    written = next(
        (e for e in annotations if (e.get("encoding") or "").lower() in TEX_ENCODINGS), None
    )
    tex = element.get("alttext") if written is None else written.text
    is_display = element.get("display") == "block" or element.get("mode") == "display"
    return _delimited(tex or _tex(element), is_display)


def word_formula(element: Any, is_display: bool) -> str:
    """$…$ or $$…$$ of an <m:oMath> element."""
    return _delimited(_of_word(element), is_display)


def _of_word(element: Any) -> str:
    name = element.tag.removeprefix(OMML) if isinstance(element.tag, str) else ""
    if name == "t":
        return element.text or ""
    made = [
        (child.tag.removeprefix(OMML), _of_word(child))
        for child in element
        if isinstance(child.tag, str)
    ]
    part = dict(made)
    if name == "f":
        return rf"\frac{{{part.get('num', '')}}}{{{part.get('den', '')}}}"
    if name == "rad":
        degree = f"[{part['deg']}]" if part.get("deg") else ""
        return rf"\sqrt{degree}{{{part.get('e', '')}}}"
    if name in ("sSup", "sSub", "sSubSup", "nary"):
        below = f"_{{{part['sub']}}}" if part.get("sub") else ""
        above = f"^{{{part['sup']}}}" if part.get("sup") else ""
        if name == "nary":
            sign = element.find(f"{OMML}naryPr/{OMML}chr")
            drawn = "∫" if sign is None else sign.get(f"{OMML}val", "")
            return f"{drawn}{below}{above} {part.get('e', '')}"
        return f"{_base(part.get('e', ''))}{below}{above}"
    if name == "d":
        return f"({', '.join(tex for kind, tex in made if kind == 'e')})"
    return "".join(tex for _, tex in made)


def _delimited(tex: str, is_display: bool) -> str:
    text = " ".join(tex.split())
    mark = "$$" if is_display else "$"
    return f"{mark}{text}{mark}" if text else ""


def _name(element: Any) -> str:
    """m:math of an EPUB is math."""
    return element.tag.rpartition(":")[2] if isinstance(element.tag, str) else ""


def _tex(element: Any) -> str:
    """Presentation MathML: scripts, fractions and roots; of anything else what its parts are."""
    name = _name(element)
    parts = [child for child in element if isinstance(child.tag, str)]
    if name in ("annotation", "annotation-xml", "mphantom"):
        return ""
    if name == "mspace":
        return " "
    if not parts:
        text = " ".join((element.text or "").split())
        return "".join(_SPECIAL.get(char, char) for char in text)
    if name == "semantics":
        return _tex(parts[0])
    made = [_tex(part) for part in parts]
    if name in ("msup", "mover") and len(made) == 2:
        return f"{_base(made[0])}^{{{made[1]}}}"
    if name in ("msub", "munder") and len(made) == 2:
        return f"{_base(made[0])}_{{{made[1]}}}"
    if name in ("msubsup", "munderover") and len(made) == 3:
        return f"{_base(made[0])}_{{{made[1]}}}^{{{made[2]}}}"
    if name == "mfrac" and len(made) == 2:
        return rf"\frac{{{made[0]}}}{{{made[1]}}}"
    if name == "msqrt":
        return rf"\sqrt{{{''.join(made)}}}"
    if name == "mroot" and len(made) == 2:
        return rf"\sqrt[{made[1]}]{{{made[0]}}}"
    if name == "mtable":
        return r" \\ ".join(made)
    if name == "mtr":
        return " & ".join(made)
    return "".join(made)


def _base(tex: str) -> str:
    return tex if len(tex) == 1 else f"{{{tex}}}"

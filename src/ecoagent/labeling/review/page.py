"""The page to judge on: one HTML file, no address in it, judged by keyboard."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources

import jinja2

from ecoagent.labeling.review.sample import Sample

FORMAT = "ecoagent-review-1"
"""Name of the page's export."""
_HIDDEN = {"band", "kind", "retriever", "cosine", "query_id"}


def script_json(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end or open one."""
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def render_page(sample: Sample) -> str:
    """The page of a sample; equal samples give equal text.

    Its security policy lets only this script and this style run, so that a hostile text could do
    nothing even if it became markup. The verdicts are in it, hidden until asked for.
    """
    folder = resources.files("ecoagent.labeling.review").joinpath("templates")
    script = folder.joinpath("page.js").read_text("utf-8")
    style = folder.joinpath("page.css").read_text("utf-8")
    env = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True, keep_trailing_newline=True)
    data = {
        "format": FORMAT,
        "digest": sample.digest,
        "run": sample.run,
        "items": [i.model_dump(mode="json", exclude=_HIDDEN) for i in sample.items],
    }
    return env.from_string(folder.joinpath("page.html.jinja").read_text("utf-8")).render(
        run=sample.run,
        digest=sample.digest,
        count=len(sample.items),
        data=script_json(data),
        script=script,
        script_hash=_hash(script),
        style=style,
        style_hash=_hash(style),
    )

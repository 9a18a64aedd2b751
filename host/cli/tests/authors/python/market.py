"""A node that uses packages of PyPI."""

import jinja2
import requests
import yaml
from dateutil import parser, relativedelta

from flowcell_sdk import Task, pack


def web(task: Task):
    base = task.input["base"]
    template = jinja2.Environment(autoescape=True).from_string("<b>{{ text }}</b>")
    session = requests.Session()
    first = session.get(f"{base}/json", params={"a": 1})
    second = session.post(f"{base}/json", json={"n": 1}, timeout=(1, 5))
    moved = session.get(f"{base}/moved")
    large = session.get(f"{base}/large", stream=True)
    failures = []
    for url, more in [
        (f"{base}/gone", {}), (task.input["closed"], {}), (base, {"verify": False}), ("https://example.com/", {}),
    ]:
        try:
            session.get(url, **more).raise_for_status()
        except Exception as error:
            failures.append(type(error).__name__)
    return {
        "html": template.render(text="1 < 2"),
        "date": (parser.parse("31 Oct 2026") + relativedelta.relativedelta(months=3)).date().isoformat(),
        "yaml": yaml.safe_load("a: [1, 2]"),
        "get": first.json(),
        "cookie": second.json()["cookie"],
        "post": second.json(),
        "moved": [moved.history[0].status_code, moved.url],
        "large": sum(len(piece) for piece in large.iter_content(10_000)),
        "failures": failures,
    }


Node = pack(dict.fromkeys(["market.run", "market.ends", "market.web", "market.fail"], web))

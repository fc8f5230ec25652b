"""Real packages at work: the task's input says which."""

from datetime import date, datetime

import attr
import jinja2
import markdown
import pydantic
import yaml
from dateutil.parser import parse
from dateutil.relativedelta import relativedelta

page = jinja2.Environment(autoescape=True).from_string("<ul>{% for item in items %}<li>{{ item }}</li>{% endfor %}</ul>")


class Order(pydantic.BaseModel):
    id: int
    tags: list[str] = []
    at: datetime


@attr.define
class Thing:
    name: str
    size: int = attr.field(default=1, validator=attr.validators.gt(0))


def invalid():
    try:
        Order(id="x", at=0)
    except pydantic.ValidationError as error:
        return str(error)


WORK = {
    "jinja2": lambda: page.render(items=["a <b>", "c"]),
    "markdown": lambda: markdown.markdown("# Title\n\nSome *text*."),
    "yaml": lambda: yaml.safe_load("a: [1, 2.5, x]\nd: 2026-01-02\n"),
    "dateutil": lambda: [parse("1 March 2026").date(), date(2025, 12, 31) + relativedelta(months=1)],
    "attrs": lambda: Thing("x", 3),
    "pydantic": lambda: Order.parse_obj({"id": "7", "tags": ["a"], "at": "2026-01-02T03:04:05"}),
    "invalid": invalid,
}


def handle(task):
    return WORK[task.text]()

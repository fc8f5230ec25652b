"""Plugin invoice makes an invoice as an HTML page from an order as JSON."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import jinja2
import quern

# This runs once, when the plugin starts: every task finds the template compiled.
PAGE = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
    Path(__file__).with_name("invoice.html").read_text(encoding="utf-8")
)
DAYS = int(quern.config("days", "30"))


def handle(task: quern.Task) -> str:
    order = task.json()
    lines = order.get("lines")
    if not lines:
        raise quern.Fatal("the order has no lines")
    for line in lines:
        line["amount"] = Decimal(line["price"]) * line["count"]
    print(f"invoice {order['number']}: {len(lines)} lines")
    return PAGE.render(
        order=order,
        lines=lines,
        total=sum(line["amount"] for line in lines),
        due=date.fromisoformat(order["date"]) + timedelta(days=DAYS),
    )

"""What every Python peer does with a task."""

import json


def empty(text):
    return ""


def order(text):
    order = json.loads(text)
    order["total"] = sum(line["quantity"] * line["price"] for line in order["lines"])
    order["weight"] = sum(line["quantity"] * weight for line in order["lines"] for weight in line["weights"])
    return json.dumps(order, ensure_ascii=False, separators=(",", ":"))

"""A web application that makes receipts: a request enqueues a task, and does not wait for it."""

import os
from contextlib import asynccontextmanager
from typing import List

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from quern.client import APIError, AsyncClient, NoTaskError, Task


@asynccontextmanager
async def lifespan(app: FastAPI):
    # One client for all requests: it keeps its connections. The timeouts are those of somebody who waits at a browser.
    async with AsyncClient(
        os.environ.get("QUERN_SERVER", "http://127.0.0.1:9465"), token=os.environ.get("QUERN_TOKEN", ""),
        tenant=os.environ.get("QUERN_TENANT", "blueque"), timeout=5, retries=2,
    ) as client:
        app.state.client = client
        app.state.receipts = client.queue("receipt", max_attempts=3, timeout=30)
        yield


app = FastAPI(lifespan=lifespan)


class Line(BaseModel):
    title: str
    quantity: int
    price: int  # in cents


class Order(BaseModel):
    number: str
    customer: str
    lines: List[Line]


@app.post("/receipts", status_code=202)
async def make(order: Order, response: Response) -> dict:
    handle = await app.state.receipts.delay(**order.model_dump())
    response.headers["Location"] = f"/receipts/{handle.id}"
    return {"id": handle.id, "status": "pending"}


@app.get("/receipts/{id}")
async def status(id: str) -> dict:
    task = await receipt(id)
    answer = {"id": task.id, "status": task.status}
    if task.status == "failed":
        answer["error"] = task.error_message
    if task.status == "complete":
        answer["page"] = f"/receipts/{id}/page"
    return answer


@app.get("/receipts/{id}/page", response_class=HTMLResponse)
async def page(id: str) -> str:
    task = await receipt(id)
    if task.status != "complete":
        raise HTTPException(409, f"the receipt is {task.status}")
    return task.text


async def receipt(id: str) -> Task:
    """The task, if it makes a receipt: the IDs of other tasks show nothing here."""
    try:
        task = await app.state.client.task(id)
    except (NoTaskError, ValueError):
        raise HTTPException(404, "no such receipt") from None
    if task.queue != "receipt":
        raise HTTPException(404, "no such receipt")
    return task


@app.exception_handler(APIError)
async def unavailable(request: Request, error: APIError) -> JSONResponse:
    print(f"{request.method} {request.url.path}: {error}", flush=True)
    return JSONResponse({"detail": "try again later"}, 503, {"Retry-After": "5"})

//! A handler whose input and result are JSON.

use quern::{Error, Json, Task};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Order<'a> {
    id: &'a str,
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    quantity: u32,
    price: f64,
}

#[derive(Serialize)]
struct Total {
    id: String,
    total: f64,
}

#[quern::handler]
fn total(task: Task) -> Result<Json<Total>, Error> {
    let order: Order = task.json()?;
    let total = order.lines.iter().map(|line| f64::from(line.quantity) * line.price).sum();
    quern::info!("added"; order = order.id, lines = Json([order.lines.len()]));
    Ok(Json(Total { id: order.id.into(), total }))
}

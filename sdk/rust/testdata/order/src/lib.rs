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

#[derive(Deserialize, Serialize)]
struct Total {
    id: String,
    total: f64,
}

#[quern::handler]
fn total(task: Task) -> Result<Json<Total>, Error> {
    let order: Order = task.json()?;
    let total = order.lines.iter().map(|line| f64::from(line.quantity) * line.price).sum();
    quern::info!("added"; order = order.id, lines = Json([order.lines.len()]));
    let total = Total { id: order.id.into(), total };
    if total.id == "stored" {
        return stored(total);
    }
    Ok(Json(total))
}

/// The total as PostgreSQL gives it back, and what null and NULL are.
fn stored(total: Total) -> Result<Json<Total>, Error> {
    let statement = "SELECT $1::jsonb AS total, 'null'::jsonb AS nothing, NULL::jsonb AS none";
    let row = quern::database("shop").query_one(statement, &[&Json(total)])?;
    let Json(mut total) = row.get::<Json<Total>>("total")?;
    let [nothing, none] = ["nothing", "none"].map(|name| row.get::<Option<Json<Option<i32>>>>(name));
    total.id += &format!(" {:?} {:?}", nothing?, none?);
    Ok(Json(total))
}

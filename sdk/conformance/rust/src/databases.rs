//! Calls of databases.

use crate::words::Words;
use crate::tell;
use quern::sql::{Database, Error, ToSql};
use std::cell::RefCell;
use std::time::SystemTime;

pub fn call(w: Words) -> Result<(), quern::Error> {
    let name = w.text(1);
    let database = quern::database(&name);
    let answer = match w.word(0) {
        "sql" => run(database, w),
        "kinds" => kinds(database).map(|()| Vec::new()),
        "commit" => database.commit().map(|()| Vec::new()),
        "rollback" => database.rollback().map(|()| Vec::new()),
        _ => step(database, w)?,
    };
    match answer {
        Ok(pieces) => tell(w.word(0), "ok", &pieces),
        Err(Error::Host(err)) => tell(w.word(0), crate::name(err), &[]),
        Err(Error::Database(err)) => {
            let pieces = if err.constraint.is_empty() { Vec::new() } else { vec![err.constraint.clone().into()] };
            tell(w.word(0), &err.state, &pieces)
        }
        Err(err) => Err(err.into()),
    }
}

type Answer = Result<Vec<Vec<u8>>, Error>;

fn run(database: Database, w: Words) -> Answer {
    let count = w.number(2) as usize;
    let values: Vec<_> = (3..3 + count).map(|i| Some(w.text(i)).filter(|_| w.word(i) != "!")).collect();
    let values: Vec<_> = values.iter().map(|value| value as &dyn ToSql).collect();
    let rows = database.query(&w.from(3 + count).0.join(" "), &values)?;
    let mut pieces = vec![rows.affected().to_string().into_bytes()];
    for row in rows {
        for i in 0..row.columns().len() {
            pieces.push(row.get::<Option<String>>(i)?.unwrap_or_else(|| "!".into()).into());
        }
    }
    Ok(pieces)
}

fn kinds(database: Database) -> Result<(), Error> {
    let row = database.query_one("SELECT * FROM kinds WHERE id = 'a'", &[])?;
    database.execute(
        "INSERT INTO kinds VALUES ('b', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        &[
            &row.get::<bool>("flag")?,
            &row.get::<i16>("small")?,
            &row.get::<i64>("large")?,
            &row.get::<String>("exact")?,
            &row.get::<f64>("real")?,
            &row.get::<String>("word")?,
            &row.get::<Option<String>>("missing")?,
            &row.get::<String>("document")?,
            &row.get::<Vec<u8>>("bytes")?,
            &row.get::<Vec<Option<i64>>>("numbers")?,
            &row.get::<Vec<Option<String>>>("words")?,
            &row.get::<SystemTime>("at")?,
            &row.get::<String>("ever")?,
            &row.get::<String>("key")?,
            &row.get::<String>("day")?,
        ],
    )?;
    Ok(())
}

fn step(database: Database, w: Words) -> Result<Answer, quern::Error> {
    let refused = RefCell::new(None);
    let value = database.once(w.word(2), || {
        let done = database.execute(&w.from(4).0.join(" "), &[]);
        done.map_err(|err| {
            refused.replace(Some(err.clone()));
            err
        })?;
        Ok(w.bytes(3))
    });
    match refused.take() {
        Some(err) => Ok(Err(err)),
        None => Ok(Ok(vec![value?])),
    }
}

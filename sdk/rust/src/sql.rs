//! Statements on the PostgreSQL databases that the manifest grants in `capabilities.sql`.
//!
//! ```
//! # fn main() -> Result<(), quern::Error> {
//! # if !cfg!(target_arch = "wasm32") { return Ok(()); }
//! let shop = quern::database("shop");
//! let added = shop.execute("INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING", &[&7, &"Ada"])?;
//! for row in shop.query("SELECT id, paid FROM orders WHERE name = $1", &[&"Ada"])? {
//!     let (id, paid): (i64, Option<std::time::SystemTime>) = (row.get("id")?, row.get("paid")?);
//!     quern::info!("order"; id = id, paid = paid.is_some());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An error of PostgreSQL has its SQLSTATE. After it the transaction refuses all statements until [`Database::rollback`], or ROLLBACK TO a
//! savepoint:
//!
//! ```
//! # fn main() -> Result<(), quern::Error> {
//! # if !cfg!(target_arch = "wasm32") { return Ok(()); }
//! # let shop = quern::database("shop");
//! match shop.execute("INSERT INTO orders (id) VALUES ($1)", &[&7]) {
//!     Err(err) if err.state() == "23505" => shop.rollback()?, // err.database() has message, detail and constraint
//!     done => drop(done?),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The first statement begins a transaction. With `commit: complete`, the default, the host commits it together with the completion of
//! the task, and undoes it if the handler returns an error. With `commit: call`, [`Database::commit`] and [`Database::once`] commit it.
//!
//! | PostgreSQL | Rust |
//! |---|---|
//! | bool | `bool` |
//! | int2, int4, int8 | `i16`, `i32`, `i64`, `u16`, `u32`, `u64`, `isize`, `usize` |
//! | float4, float8 | `f32`, `f64` |
//! | text, varchar; any other type in PostgreSQL's text format, such as numeric, uuid and interval | `String`, `&str` |
//! | bytea | `Vec<u8>`, `&[u8]` |
//! | timestamptz; timestamp in UTC, date | [`SystemTime`](std::time::SystemTime) |
//! | json, jsonb | [`Json`](crate::Json) (feature `serde`), or `String` |
//! | arrays of these | `Vec<T>`, `&[T]` |
//! | NULL | `None` of an `Option<T>` |

mod time;
mod value;

pub use value::{FromSql, ToSql, Value};

use crate::{found, slot, ErrorKind, HostError};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// A PostgreSQL database, which the manifest has to grant.
#[derive(Clone, Copy, Debug)]
pub struct Database<'a> {
    name: &'a str,
}

/// The database of a name. This asks nothing of the host.
pub fn database(name: &str) -> Database<'_> {
    Database { name }
}

// Safety of all calls: the ranges are those of slices.
impl Database<'_> {
    /// Runs a statement, and returns how many rows it affected. Its parameters are `$1`, `$2` and so on.
    pub fn execute(&self, statement: &str, parameters: &[&dyn ToSql]) -> Result<u64, Error> {
        self.query(statement, parameters).map(|rows| rows.affected())
    }

    /// Runs a statement, and returns its rows. [`ErrorKind::Limit`] if the answer or the time exceeds what the manifest allows.
    /// [`ErrorKind::Unavailable`] if the database does not serve: return the error, and the task runs again later without an attempt
    /// being counted.
    pub fn query(&self, statement: &str, parameters: &[&dyn ToSql]) -> Result<Rows, Error> {
        let mut list = Vec::new();
        for (i, parameter) in parameters.iter().enumerate() {
            let value = parameter.to_sql().map_err(|why| Error::Value(format!("parameter ${}: {why}", i + 1)))?;
            value.append(&mut list);
        }
        let (d, s) = (self.name, statement);
        let answer = call!(unsafe { sql(d.as_ptr(), d.len(), s.as_ptr(), s.len(), list.as_ptr(), list.len()) });
        read("sql", slot(answer.map_err(|err| err.about("", d)))?)
    }

    /// The first row of a statement's answer; `None` if it has no rows.
    pub fn query_opt(&self, statement: &str, parameters: &[&dyn ToSql]) -> Result<Option<Row>, Error> {
        self.query(statement, parameters).map(|rows| rows.get(0))
    }

    /// The first row of a statement's answer. An error if it has no rows.
    pub fn query_one(&self, statement: &str, parameters: &[&dyn ToSql]) -> Result<Row, Error> {
        let row = self.query_opt(statement, parameters)?;
        row.ok_or_else(|| Error::Value("the answer has no rows: use query_opt if that may be".into()))
    }

    /// Commits the transaction. The manifest must say `commit: call`. After [`ErrorKind::Unavailable`] it is not known whether the
    /// transaction was committed: [`Database::once`] finds out.
    pub fn commit(&self) -> Result<(), Error> {
        self.finish("", &[])
    }

    fn finish(&self, step: &str, value: &[u8]) -> Result<(), Error> {
        let d = self.name;
        let answer = call!(unsafe { sql_commit(d.as_ptr(), d.len(), step.as_ptr(), step.len(), value.as_ptr(), value.len()) });
        read("sql_commit", slot(answer.map_err(|err| self.about(step, err)))?).map(drop)
    }

    /// Undoes the transaction. The next statement begins a new one.
    pub fn rollback(&self) -> Result<(), Error> {
        let d = self.name;
        call!(unsafe { sql_rollback(d.as_ptr(), d.len()) }).map_err(|err| err.about("", d))?;
        Ok(())
    }

    /// Does a step of the task that must not be done twice, however often the task runs: if a run of the task has done the step, this
    /// returns the value that the function returned then. Otherwise it calls the function, and commits its statements together with its
    /// value, of at most 1 MiB. If the function returns an error, its statements are undone. The manifest must say `commit: call`.
    ///
    /// ```
    /// # fn main() -> Result<(), quern::Error> {
    /// # if !cfg!(target_arch = "wasm32") { return Ok(()); }
    /// let shop = quern::database("shop");
    /// let bill = shop.once("bill", || {
    ///     let row = shop.query_one("INSERT INTO bills (name) VALUES ($1) RETURNING id::text", &[&"Ada"])?;
    ///     Ok(row.get::<String>("id")?)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once<T: AsRef<[u8]>>(&self, step: &str, run: impl FnOnce() -> Result<T, crate::Error>) -> Result<Vec<u8>, crate::Error> {
        if let Some(value) = self.step(step)? {
            return Ok(value);
        }
        let value = match run() {
            Ok(value) => value,
            Err(mut err) => {
                if let Err(undo) = self.rollback() {
                    err.message += &format!("; {undo}");
                }
                return Err(err);
            }
        };
        match self.finish(step, value.as_ref()) {
            // Another run was faster.
            Err(err) if err.kind() == Some(ErrorKind::Conflict) => Ok(self.step(step)?.ok_or(err)?),
            done => done.map(|()| value.as_ref().into()).map_err(crate::Error::from),
        }
    }

    fn step(&self, step: &str) -> Result<Option<Vec<u8>>, Error> {
        let d = self.name;
        let answer = call!(unsafe { sql_step(d.as_ptr(), d.len(), step.as_ptr(), step.len()) });
        Ok(found(slot(answer.map_err(|err| self.about(step, err))))?)
    }

    fn about(&self, step: &str, err: HostError) -> HostError {
        if step.is_empty() { err.about("", self.name) } else { err.about(self.name, step) }
    }
}

/// Why a statement did not do what it was to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// PostgreSQL refused it. After that it refuses all statements of the transaction until ROLLBACK TO a savepoint, or
    /// [`Database::rollback`].
    Database(Box<DatabaseError>),
    /// The host refused it.
    Host(HostError),
    /// A value is not what is wanted: of another type, NULL, or not there.
    Value(String),
}

impl Error {
    /// The SQLSTATE of an error of PostgreSQL, such as `23505`; empty for another error.
    pub fn state(&self) -> &str {
        self.database().map_or("", |err| &err.state)
    }

    /// The error of PostgreSQL, if it is one.
    pub fn database(&self) -> Option<&DatabaseError> {
        match self {
            Error::Database(err) => Some(err),
            _ => None,
        }
    }

    /// Why the host refused it, if it did.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Error::Host(err) => Some(err.kind),
            _ => None,
        }
    }
}

impl From<HostError> for Error {
    fn from(err: HostError) -> Error {
        Error::Host(err)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Database(err) => err.fmt(f),
            Error::Host(err) => err.fmt(f),
            Error::Value(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// An error of PostgreSQL. What it does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseError {
    /// The SQLSTATE, such as `23505`.
    pub state: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
    /// The place in the statement, in characters from 1; 0 if there is none.
    pub position: u32,
    pub schema: String,
    pub table: String,
    pub column: String,
    pub data_type: String,
    pub constraint: String,
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        write!(f, " (SQLSTATE {})", self.state)
    }
}

impl std::error::Error for DatabaseError {}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    pub name: String,
    /// Of its type, as in PostgreSQL's table pg_type.
    pub oid: u32,
}

/// The answer to a statement.
#[derive(Debug)]
struct Answer {
    affected: u64,
    columns: Vec<Column>,
    rows: usize,
    /// Kinds of all values, row by row, and where their bytes are.
    values: Vec<(u8, Range<usize>)>,
    data: Vec<u8>,
}

/// The rows of an answer, all in memory.
#[derive(Clone, Debug)]
pub struct Rows {
    answer: Rc<Answer>,
    next: usize,
}

impl Rows {
    /// How many rows were inserted, changed, deleted, selected or fetched.
    pub fn affected(&self) -> u64 {
        self.answer.affected
    }

    pub fn columns(&self) -> &[Column] {
        &self.answer.columns
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.answer.rows
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A row by its number, from 0; `None` if there are fewer.
    pub fn get(&self, number: usize) -> Option<Row> {
        Some(number).filter(|&number| number < self.len()).map(|number| Row { answer: self.answer.clone(), number })
    }
}

impl Iterator for Rows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let row = self.get(self.next);
        self.next += usize::from(row.is_some());
        row
    }
}

/// A row of an answer.
#[derive(Clone, Debug)]
pub struct Row {
    answer: Rc<Answer>,
    number: usize,
}

impl Row {
    pub fn columns(&self) -> &[Column] {
        &self.answer.columns
    }

    /// A value by its column's name, or by its number from 0: `row.get::<Option<String>>("name")?`.
    pub fn get<T: FromSql>(&self, column: impl Place) -> Result<T, Error> {
        let columns = self.columns();
        let at = column.place(columns).ok_or_else(|| {
            let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
            Error::Value(format!("the answer has no column {column}: it has {}", names.join(", ")))
        })?;
        let (kind, range) = &self.answer.values[self.number * columns.len() + at];
        let value = Value::read(*kind, &self.answer.data[range.clone()]);
        T::from_sql(&value).map_err(|why| Error::Value(format!("column {}: {why}", columns[at].name)))
    }
}

/// The name of a column, or its number.
pub trait Place: fmt::Display {
    #[doc(hidden)]
    fn place(&self, columns: &[Column]) -> Option<usize>;
}

impl Place for usize {
    fn place(&self, columns: &[Column]) -> Option<usize> {
        Some(*self).filter(|&at| at < columns.len())
    }
}

impl Place for &str {
    fn place(&self, columns: &[Column]) -> Option<usize> {
        columns.iter().position(|column| column.name == *self)
    }
}

/// The answer to a statement, from what a function has put into the slot.
fn read(function: &'static str, data: Vec<u8>) -> Result<Rows, Error> {
    // Hosts write their own answers rightly.
    parse(data).unwrap_or_else(|| {
        Err(Error::Host(HostError { function, name: String::new(), kind: ErrorKind::Other(0), reason: String::new() }))
    })
}

/// Reads an answer in the layout of sdk/ABI.md; `None` if it is none.
fn parse(data: Vec<u8>) -> Option<Result<Rows, Error>> {
    let mut reader = Reader(&data);
    let rows = reader.number()? as i32;
    if rows < 0 {
        return Some(Err(Error::Database(Box::new(reader.error()?))));
    }
    let affected = u64::from(reader.number()?) | u64::from(reader.number()?) << 32;
    let mut columns = Vec::new();
    for _ in 0..reader.number()? {
        let oid = reader.number()?;
        columns.push(Column { name: reader.text()?, oid });
    }
    let (rows, mut values) = (rows as usize, Vec::new());
    for _ in 0..rows * columns.len() {
        let kind = reader.byte()?;
        let size = reader.bytes()?.len();
        let end = data.len() - reader.0.len();
        values.push((kind, end - size..end));
    }
    Some(Ok(Rows { answer: Rc::new(Answer { affected, columns, rows, values, data }), next: 0 }))
}

/// Reads parts of an answer.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.0.get(..4)?;
        self.0 = &self.0[4..];
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = self.number()? as usize;
        let bytes = self.0.get(..size)?;
        self.0 = &self.0[size..];
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn error(&mut self) -> Option<DatabaseError> {
        let mut err = DatabaseError::default();
        for _ in 0..self.number()? {
            let field = self.byte()?;
            let text = self.text()?;
            match field {
                b'C' => err.state = text,
                b'M' => err.message = text,
                b'D' => err.detail = text,
                b'H' => err.hint = text,
                b'P' => err.position = text.parse().unwrap_or_default(),
                b's' => err.schema = text,
                b't' => err.table = text,
                b'c' => err.column = text,
                b'd' => err.data_type = text,
                b'n' => err.constraint = text,
                _ => {}
            }
        }
        Some(err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of sdk/ABI.md.
    const ROW: &[u8] = b"\x01\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x17\0\0\0\x01\0\0\0n\x19\0\0\0\x01\0\0\0t\x01\x02\0\0\042\0\0\0\0\0";
    const REFUSED: &[u8] = b"\xff\xff\xff\xff\x02\0\0\0C\x05\0\0\042P02M\x18\0\0\0there is no parameter $1";

    #[test]
    fn answers() {
        let rows = parse(ROW.into()).unwrap().unwrap();
        assert_eq!((rows.affected(), rows.len(), rows.columns()[0].oid), (1, 1, 23));
        let row = rows.clone().next().unwrap();
        assert_eq!((row.get("n"), row.get(1usize)), (Ok(42), Ok(None::<String>)));
        for (got, want) in [
            (row.get::<i32>("m").map(drop), "the answer has no column m: it has n, t"),
            (row.get::<i32>(2usize).map(drop), "the answer has no column 2: it has n, t"),
            (row.get::<String>("t").map(drop), "column t: it is NULL: read an Option<String>"),
        ] {
            assert_eq!(got, Err(Error::Value(want.into())));
        }
        assert!(rows.get(1).is_none());
        let err = parse(REFUSED.into()).unwrap().unwrap_err();
        assert_eq!((err.state(), err.to_string().as_str()), ("42P02", "there is no parameter $1 (SQLSTATE 42P02)"));
        for whole in [ROW, REFUSED] {
            for size in 0..whole.len() {
                assert!(parse(whole[..size].into()).is_none(), "{size}");
            }
        }
    }
}

//! The smallest handler that reads its input and a setting, with ways to fail.

use quern::{Error, Task};

#[quern::handler]
fn greet(task: Task) -> Result<String, Error> {
    let name = task.text()?.trim();
    let greeting = quern::config("greeting").unwrap_or_else(|| "Hello".into());
    match name {
        "" => Err(Error::fatal("no name")),
        "panic" => panic!("no ink for {greeting}"),
        "progress" => quern::progress(f64::NAN, name).map(|()| String::new()).map_err(Error::from),
        "number" => Ok(name.parse::<u32>()?.to_string()),
        _ => Ok(format!("{greeting}, {name}!")),
    }
}

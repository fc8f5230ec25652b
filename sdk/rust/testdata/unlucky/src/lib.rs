//! A handler whose start panics.

use quern::{Error, Task};

fn load() {
    panic!("no {}", "paper");
}

#[quern::handler(start = load)]
fn handle(_: Task) -> Result<(), Error> {
    Ok(())
}

//! A plugin built with Extism's PDK for Rust of the line 0.x, whose functions are env.extism_*.
use extism_pdk::*;

#[plugin_fn]
pub fn echo(input: Vec<u8>) -> FnResult<Vec<u8>> {
    Ok(input)
}

/// Counts words, and keeps their sum in a variable of the task.
#[plugin_fn]
pub fn words(input: String) -> FnResult<String> {
    let separator = config::get("separator").unwrap_or_else(|| " ".into());
    let words = input.split(separator.as_str()).count();
    if words < 2 {
        return Err(WithReturnCode::new(Error::msg("too few words"), 3));
    }
    let sum: usize = match var::get::<String>("sum")? {
        Some(sum) => sum.parse()?,
        None => 0,
    };
    var::set("sum", (sum + words).to_string())?;
    info!("counted {}", words);
    Ok(serde_json::json!({ "words": words, "sum": var::get::<String>("sum")? }).to_string())
}

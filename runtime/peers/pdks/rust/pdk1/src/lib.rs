//! A plugin built with Extism's PDK for Rust.
use extism_pdk::*;

#[plugin_fn]
pub fn echo(input: Vec<u8>) -> FnResult<Vec<u8>> {
    Ok(input)
}

/// Counts words, and keeps their sum in a variable of the task.
#[plugin_fn]
pub fn words(input: String) -> FnResult<Json<serde_json::Value>> {
    let separator = config::get("separator")?.unwrap_or_else(|| " ".into());
    let words = input.split(separator.as_str()).count() as u64;
    if words < 2 {
        return Err(WithReturnCode::new(Error::msg("too few words"), 3));
    }
    var::set("sum", var::get::<u64>("sum")?.unwrap_or(0) + words)?;
    info!("counted {}", words);
    Ok(Json(serde_json::json!({ "words": words, "sum": var::get::<u64>("sum")? })))
}

//! The attribute `quern::handler`. It reads only the head of a function, so it needs no parser of Rust.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes a function the handler of the module: `fn(Task) -> Result<impl Output, Error>`.
///
/// With `#[quern::handler(start = load)]` the function `load` runs once, before any task: every task starts from the memory
/// that it leaves.
#[proc_macro_attribute]
pub fn handler(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let start = match start_of(arguments) {
        Ok(start) => start,
        Err((span, why)) => return with_error(item, span, why),
    };
    let name = match name_of(&item) {
        Ok(name) => name,
        Err((span, why)) => return with_error(item, span, why),
    };
    // The macro has the edition of the crate quern, where #[no_mangle] is not yet unsafe.
    let mut call = vec![TokenTree::Ident(name)];
    if let Some(start) = start {
        call.push(TokenTree::Punct(Punct::new(',', Spacing::Alone)));
        call.extend(start);
    }
    let mut out = item;
    out.extend(macro_call(["quern", "__export"], call, Span::call_site()));
    out
}

type Wrong = (Span, &'static str);

/// What stands behind `start =` in the attribute's arguments.
fn start_of(arguments: TokenStream) -> Result<Option<TokenStream>, Wrong> {
    const EXPECTED: &str = "expected #[quern::handler] or #[quern::handler(start = FUNCTION)]";
    let mut tokens = arguments.into_iter();
    match tokens.next() {
        None => return Ok(None),
        Some(TokenTree::Ident(word)) if word.to_string() == "start" => {}
        Some(other) => return Err((other.span(), EXPECTED)),
    }
    match tokens.next() {
        Some(TokenTree::Punct(p)) if p.as_char() == '=' => {}
        other => return Err((other.map_or_else(Span::call_site, |t| t.span()), EXPECTED)),
    }
    let path: Vec<TokenTree> = tokens.collect();
    match path.first() {
        None => Err((Span::call_site(), EXPECTED)),
        Some(TokenTree::Literal(text)) => Err((text.span(), "expected the function's name without quotation marks: #[quern::handler(start = load)]")),
        Some(_) => Ok(Some(path.into_iter().collect())),
    }
}

/// The name of the function that the attribute is on.
fn name_of(item: &TokenStream) -> Result<Ident, Wrong> {
    let mut tokens = item.clone().into_iter();
    while let Some(token) = tokens.next() {
        let word = match &token {
            TokenTree::Ident(word) => word.to_string(),
            _ => continue, // attributes, and what stands in the brackets of pub(crate)
        };
        match word.as_str() {
            "pub" => {}
            "async" => return Err((token.span(), "a handler is not async: the functions of quern return when the host has answered")),
            "fn" => {
                let name = match tokens.next() {
                    Some(TokenTree::Ident(name)) => name,
                    _ => break,
                };
                return match tokens.next() {
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                        if group.stream().is_empty() {
                            return Err((group.span(), "a handler gets the task: expected (task: Task)"));
                        }
                        returns_result(tokens).map(|()| name)
                    }
                    _ => Err((name.span(), "a handler has no type parameters: expected fn(task: Task) -> Result<impl Output, Error>")),
                };
            }
            _ => break,
        }
    }
    Err((Span::call_site(), "#[quern::handler] belongs on a function: fn handle(task: Task) -> Result<String, Error>"))
}

/// Tells types that are no Result by their first word. The compiler finds the others, as aliases may have any name.
fn returns_result(mut tokens: impl Iterator<Item = TokenTree>) -> Result<(), Wrong> {
    const EXPECTED: &str = "a handler returns a Result: expected -> Result<String, Error>";
    let first = match (tokens.next(), tokens.next(), tokens.next()) {
        (Some(TokenTree::Punct(_)), Some(TokenTree::Punct(_)), Some(first)) => first, // ->
        (other, ..) => return Err((other.map_or_else(Span::call_site, |t| t.span()), EXPECTED)),
    };
    let plain = match &first {
        TokenTree::Ident(word) => {
            let word = word.to_string();
            let path = matches!(tokens.next(), Some(TokenTree::Punct(p)) if p.as_char() == ':');
            !path && (matches!(&word[..], "String" | "Vec" | "Option" | "Json") || word.starts_with(|c: char| c.is_ascii_lowercase()))
        }
        TokenTree::Punct(p) => p.as_char() == '&',
        TokenTree::Group(group) => group.delimiter() != Delimiter::None, // a type that another macro passes on has none
        TokenTree::Literal(_) => true,
    };
    if plain {
        return Err((first.span(), EXPECTED));
    }
    Ok(())
}

/// The item, and an error of the compiler.
fn with_error(item: TokenStream, span: Span, why: &str) -> TokenStream {
    let mut text = proc_macro::Literal::string(why);
    text.set_span(span);
    let mut out = item;
    out.extend(macro_call(["core", "compile_error"], vec![TokenTree::Literal(text)], span));
    out
}

/// `::CRATE::NAME! { … }`.
fn macro_call(path: [&str; 2], arguments: Vec<TokenTree>, span: Span) -> TokenStream {
    let mut tokens = Vec::new();
    for name in path {
        tokens.push(TokenTree::Punct(Punct::new(':', Spacing::Joint)));
        tokens.push(TokenTree::Punct(Punct::new(':', Spacing::Alone)));
        tokens.push(TokenTree::Ident(Ident::new(name, span)));
    }
    tokens.push(TokenTree::Punct(Punct::new('!', Spacing::Alone)));
    tokens.push(TokenTree::Group(Group::new(Delimiter::Brace, arguments.into_iter().collect())));
    for token in &mut tokens {
        token.set_span(span);
    }
    tokens.into_iter().collect()
}

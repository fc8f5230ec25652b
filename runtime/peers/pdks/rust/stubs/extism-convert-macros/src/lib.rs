//! What extism-convert needs of its macros. The plugin derives nothing by them.
use proc_macro::TokenStream;

#[proc_macro_derive(ToBytes, attributes(encoding))]
pub fn to_bytes(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

#[proc_macro_derive(FromBytes, attributes(encoding))]
pub fn from_bytes(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

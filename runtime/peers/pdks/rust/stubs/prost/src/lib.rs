//! What extism-convert needs of prost. The plugin encodes nothing by it.

/// A message of Protocol Buffers. No type is one.
pub trait Message: Default {
    fn encode_to_vec(&self) -> Vec<u8>;
    fn decode(data: &[u8]) -> Result<Self, std::fmt::Error>;
}

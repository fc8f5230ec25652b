use crate::{found, millis, slot, ErrorKind, HostError};
use std::time::Duration;

/// A bucket of the tenant's key-value store, which the manifest has to grant. Keys are 1 to 256 bytes of UTF-8 without control
/// characters, values at most 512 KiB.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    name: &'a str,
}

/// The bucket of a name. This asks nothing of the host.
pub fn bucket(name: &str) -> Bucket<'_> {
    Bucket { name }
}

/// What a swap found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The expected value, or none where none was expected: the new one is set.
    Done,
    /// Another value.
    Present(Vec<u8>),
    /// No value, where one was expected.
    Absent,
}

fn ttl(ttl: Option<Duration>) -> i64 {
    ttl.map_or(0, millis)
}

// Safety of all calls: the ranges are those of slices.
impl Bucket<'_> {
    /// The value of a key; `None` if there is none.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, HostError> {
        let b = self.name;
        found(slot(self.about(key, call!(unsafe { kv_get(b.as_ptr(), b.len(), key.as_ptr(), key.len()) }))))
    }

    /// Sets a value that never expires. [`ErrorKind::Quota`] if the bucket has no room.
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), HostError> {
        self.set_for(key, value, None)
    }

    /// Sets a value that expires after the time, if there is one: rounded up to milliseconds, and at least one.
    pub fn set_for(&self, key: &str, value: impl AsRef<[u8]>, time: Option<Duration>) -> Result<(), HostError> {
        let (b, v) = (self.name, value.as_ref());
        self.about(key, call!(unsafe { kv_set(b.as_ptr(), b.len(), key.as_ptr(), key.len(), v.as_ptr(), v.len(), ttl(time)) })).map(drop)
    }

    /// Deletes a value, and returns whether there was one.
    pub fn delete(&self, key: &str) -> Result<bool, HostError> {
        let b = self.name;
        self.about(key, call!(unsafe { kv_delete(b.as_ptr(), b.len(), key.as_ptr(), key.len()) })).map(|n| n == 1)
    }

    /// Adds to a decimal number, 0 if there is none, and returns the sum. [`ErrorKind::Conflict`] for another value.
    pub fn increment(&self, key: &str, delta: i64) -> Result<i64, HostError> {
        let (b, mut sum) = (self.name, 0);
        self.about(key, call!(unsafe { kv_increment(b.as_ptr(), b.len(), key.as_ptr(), key.len(), delta, &mut sum) }))?;
        Ok(sum)
    }

    /// Sets a value like [`Bucket::set_for`] if the present one is `old`, or if there is none and `old` is `None`.
    pub fn swap(&self, key: &str, old: Option<&[u8]>, value: impl AsRef<[u8]>, time: Option<Duration>) -> Result<Swap, HostError> {
        let (b, v) = (self.name, value.as_ref());
        let (old, old_size) = old.map_or((std::ptr::null(), usize::MAX), |old| (old.as_ptr(), old.len()));
        let answer =
            call!(unsafe { kv_swap(b.as_ptr(), b.len(), key.as_ptr(), key.len(), old, old_size, v.as_ptr(), v.len(), ttl(time)) });
        match answer {
            Err(err) if err.kind == ErrorKind::Conflict => slot(call!(unsafe { result_size() })).map(Swap::Present),
            Err(err) if err.kind == ErrorKind::NotFound => Ok(Swap::Absent),
            done => self.about(key, done).map(|_| Swap::Done),
        }
    }

    /// At most `limit` (1 to 1000) keys that begin with `prefix` and sort after the key `after`, in byte order. Both may be empty.
    pub fn list(&self, prefix: &str, after: &str, limit: u32) -> Result<Vec<String>, HostError> {
        let b = self.name;
        let answer = call!(unsafe { kv_list(b.as_ptr(), b.len(), prefix.as_ptr(), prefix.len(), after.as_ptr(), after.len(), limit as i32) });
        let list = slot(self.about(prefix, answer))?;
        let (mut keys, mut rest) = (Vec::new(), &list[..]);
        while let Some((size, more)) = prefixed(rest) {
            keys.push(String::from_utf8_lossy(&more[..size]).into_owned());
            rest = &more[size..];
        }
        Ok(keys)
    }

    fn about<T>(&self, key: &str, answer: Result<T, HostError>) -> Result<T, HostError> {
        answer.map_err(|err| err.about(self.name, key))
    }
}

/// Bytes behind a length of 4 bytes, and that length, which is at most theirs.
pub(crate) fn prefixed(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (size, rest) = (bytes.get(..4)?, &bytes[4..]);
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    Some((size.min(rest.len()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live() {
        assert_eq!([None, Some(Duration::ZERO), Some(Duration::from_nanos(1)), Some(Duration::from_micros(1001)), Some(Duration::MAX)].map(ttl), [0, 1, 1, 2, i64::MAX]);
    }
}

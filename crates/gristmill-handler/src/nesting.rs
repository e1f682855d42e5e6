//! Looks over a payload before a decoder sees it: one value, not too deep. No recursion, no allocation.
//!
//! `rmp_serde` counts the depth of arrays and maps but not that of enums, so a payload of a recursive enum could
//! exhaust the stack and take the whole process with it; and it does not say what it left unread.

use gristmill_job::envelope::MAX_DEPTH;

/// Why a payload is not handed to its decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("{0} bytes follow behind its value")]
    Trailing(usize),
    #[error("it ends in the middle of a value")]
    Truncated,
    #[error("byte 0xc1 begins no MessagePack value")]
    Reserved,
}

/// Exactly one MessagePack value of at most [`MAX_DEPTH`] levels of arrays and maps.
pub(crate) fn check_message_pack(bytes: &[u8]) -> Result<(), Fault> {
    let mut rest = bytes;
    let mut left = [0u64; MAX_DEPTH]; // values still to come, per open array or map
    let mut depth = 0;
    loop {
        if let Some(values) = skip_value(&mut rest)? {
            *left.get_mut(depth).ok_or(Fault::TooDeep)? = values;
            depth += 1;
        }
        while depth > 0 && left[depth - 1] == 0 {
            depth -= 1;
        }
        if depth == 0 {
            return if rest.is_empty() { Ok(()) } else { Err(Fault::Trailing(rest.len())) };
        }
        left[depth - 1] -= 1;
    }
}

/// Skips a scalar, or the head of an array or map, of which it tells how many values follow.
fn skip_value(rest: &mut &[u8]) -> Result<Option<u64>, Fault> {
    let marker = number(rest, 1)?;
    let skipped = match marker {
        0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 0,
        0x80..=0x8f => return Ok(Some(2 * (marker & 0x0f))),
        0x90..=0x9f => return Ok(Some(marker & 0x0f)),
        0xa0..=0xbf => marker & 0x1f,
        0xc4..=0xc6 => number(rest, 1 << (marker - 0xc4))?,
        0xc7..=0xc9 => number(rest, 1 << (marker - 0xc7))? + 1,
        0xca => 4,
        0xcb => 8,
        0xcc..=0xcf => 1 << (marker - 0xcc),
        0xd0..=0xd3 => 1 << (marker - 0xd0),
        0xd4..=0xd8 => (1 << (marker - 0xd4)) + 1,
        0xd9..=0xdb => number(rest, 1 << (marker - 0xd9))?,
        0xdc | 0xdd => return number(rest, 2 << (marker - 0xdc)).map(Some),
        0xde | 0xdf => return number(rest, 2 << (marker - 0xde)).map(|pairs| Some(2 * pairs)),
        _ => return Err(Fault::Reserved),
    };
    let skipped = usize::try_from(skipped).map_err(|_| Fault::Truncated)?;
    *rest = rest.get(skipped..).ok_or(Fault::Truncated)?;
    Ok(None)
}

/// A big-endian number of `width` bytes, at most 4.
fn number(rest: &mut &[u8], width: usize) -> Result<u64, Fault> {
    let (digits, tail) = rest.split_at_checked(width).ok_or(Fault::Truncated)?;
    *rest = tail;
    Ok(digits.iter().fold(0, |n, digit| n << 8 | u64::from(*digit)))
}

/// At most [`MAX_DEPTH`] levels of arrays and objects; everything else is the JSON decoder's to judge.
pub(crate) fn check_json(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.len() <= MAX_DEPTH {
        return Ok(()); // each level takes a byte
    }
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' if depth == MAX_DEPTH => return Err(Fault::TooDeep),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "nesting_tests.rs"]
mod tests;

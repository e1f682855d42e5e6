//! Where a request or reply ends: enough of RESP2 and RESP3 to split a stream, nothing of its meaning.

/// Nesting deeper than this is no reply of Redis.
const MAX_DEPTH: usize = 64;

/// The length of the first complete message of `bytes`, line ends included; none when more bytes are needed. A line that is not RESP
/// (an inline command) is a message of its own.
pub(super) fn first_message(bytes: &[u8]) -> Option<usize> {
    message(bytes, 0, 0)
}

/// Splits the complete messages off the front of `buffer`.
pub(super) fn take_messages(buffer: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut start = 0;
    while let Some(length) = first_message(&buffer[start..]) {
        messages.push(buffer[start..start + length].to_vec());
        start += length;
    }
    buffer.drain(..start);
    messages
}

/// RESP3 sends these without a request.
pub(super) fn is_push(message: &[u8]) -> bool {
    message.first() == Some(&b'>')
}

fn message(bytes: &[u8], start: usize, depth: usize) -> Option<usize> {
    let line = bytes.get(start..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let after_line = start + line + 2;
    let kind = *bytes.get(start)?;
    let number = || std::str::from_utf8(&bytes[start + 1..start + line]).ok()?.parse::<i64>().ok();
    let children = match (kind, number()) {
        (b'$' | b'=' | b'!', Some(length)) => {
            let end =
                usize::try_from(length).map_or(after_line, |length| after_line.saturating_add(length + 2));
            return (bytes.len() >= end).then_some(end);
        }
        (b'*' | b'~' | b'>', Some(count)) => count.max(0),
        (b'%', Some(count)) => count.max(0).saturating_mul(2),
        (b'|', Some(count)) => count.max(0).saturating_mul(2).saturating_add(1),
        _ => 0,
    };
    if depth >= MAX_DEPTH {
        return Some(after_line);
    }
    let mut end = after_line;
    for _ in 0..children {
        end = message(bytes, end, depth + 1)?;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_every_byte_alike() {
        let stream: &[u8] = b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n+OK\r\n:1\r\n$-1\r\n*-1\r\n*0\r\nPING\r\n%1\r\n+a\r\n*1\r\n:2\r\n-ERR x\r\n>1\r\n+p\r\n";
        let whole = take_messages(&mut stream.to_vec());
        assert_eq!(whole.len(), 10);
        assert_eq!(whole.concat(), stream);
        assert!(is_push(&whole[9]));
        let (mut buffer, mut pieces) = (Vec::new(), Vec::new());
        for byte in stream {
            buffer.push(*byte);
            pieces.extend(take_messages(&mut buffer));
        }
        assert_eq!(pieces, whole);
        assert!(buffer.is_empty());
    }

    #[test]
    fn waits_for_the_rest() {
        for part in [&b"*2\r\n$1\r\na\r\n"[..], b"$5\r\nabc", b"+O", b"", b"*1\r\n*1\r\n"] {
            assert_eq!(first_message(part), None);
        }
    }
}

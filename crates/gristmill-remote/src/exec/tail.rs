//! The end of what a process writes, read as it comes, so that it never waits for us and never fills our memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// How long the end of a stream is waited for after its process has ended: who left the process group may hold it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of a line is logged.
const LINE_BYTES: usize = 2000;

pub(crate) struct Tail {
    kept: Arc<Mutex<Kept>>,
    reading: JoinHandle<()>,
    logs: bool,
}

#[derive(Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// Whether there was more in front.
    cut: bool,
}

impl Tail {
    /// Reads `stream` to its end and keeps its last `limit` bytes. Each line is logged at level debug where that is
    /// wanted, under the kind it is for.
    pub(crate) fn of(
        mut stream: impl AsyncRead + Unpin + Send + 'static,
        limit: usize,
        logged: Option<Arc<str>>,
    ) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let shared = Arc::clone(&kept);
        let mut log = logged.filter(|_| tracing::enabled!(tracing::Level::DEBUG)).map(Log::new);
        let logs = log.is_some();
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                if let Some(log) = &mut log {
                    log.take(&buffer[..count]);
                }
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                kept.bytes.extend(&buffer[..count]);
                let over = kept.bytes.len().saturating_sub(limit);
                kept.bytes.drain(..over);
                kept.cut |= over > 0;
            }
            if let Some(log) = &mut log {
                log.end();
            }
        });
        Self { kept, reading, logs }
    }

    /// Waits until all of it is logged, where it is; nearly so, if the stream does not end.
    pub(crate) async fn logged(&mut self) {
        if self.logs {
            let _ = tokio::time::timeout(PATIENCE, &mut self.reading).await;
        }
    }

    /// What was kept once the stream has ended, or nearly so; and whether there was more in front of it.
    pub(crate) async fn end(mut self) -> (Vec<u8>, bool) {
        let _ = tokio::time::timeout(PATIENCE, &mut self.reading).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.bytes.iter().copied().collect(), kept.cut)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Lines on their way to the log.
struct Log {
    kind: Arc<str>,
    line: Vec<u8>,
}

impl Log {
    fn new(kind: Arc<str>) -> Self {
        Self { kind, line: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.write(),
                _ if self.line.len() < LINE_BYTES => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn write(&mut self) {
        tracing::debug!(kind = &*self.kind, "{}", String::from_utf8_lossy(&self.line));
        self.line.clear();
    }

    /// A last line may lack its end.
    fn end(&mut self) {
        if !self.line.is_empty() {
            self.write();
        }
    }
}

/// The last bytes as text for an error: whole characters, and whole lines where there are several.
pub(crate) fn text((bytes, cut): (Vec<u8>, bool)) -> String {
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end();
    match text.split_once('\n') {
        Some((_, rest)) if cut && !rest.is_empty() => format!("…\n{rest}"),
        _ if cut => format!("…{text}"),
        _ => text.trim_start().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_is_kept_and_the_rest_is_read() {
        let whole: Vec<u8> = (0..100_000u32).map(|n| b"0123456789"[n as usize % 10]).collect();
        let (kept, cut) = Tail::of(std::io::Cursor::new(whole.clone()), 15, None).end().await;
        assert_eq!((kept.as_slice(), cut), (&whole[whole.len() - 15..], true));
        assert_eq!(Tail::of(&b"all"[..], 15, None).end().await, (b"all".to_vec(), false));
    }

    #[test]
    fn a_cut_line_is_left_out_where_others_follow() {
        assert_eq!(text((b"rt\nline\nlast\n".to_vec(), true)), "…\nline\nlast");
        assert_eq!(text((b"only a part".to_vec(), true)), "…only a part");
        assert_eq!(text((b"\n whole\n\n".to_vec(), false)), "whole");
    }
}

